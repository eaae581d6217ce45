"""One invented dialogue: a seeker asks about one thing, a wizard answers from knowledge that each turn changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from data_modules.embedded import hallucinate as h
from data_modules.embedded.domains import DOMAINS
from data_modules.embedded.facts import Domain, draw
from data_modules.embedded.hallucinate import Fact
from data_modules.embedded.knowledge import State, know, unknown
from data_modules.embedded.knowledge import sentences as write_sentences
from data_modules.embedded.lexicon import Random01, pick, word
from data_modules.embedded.phrasing import (
    GENERIC,
    GREETINGS,
    PERSONAL,
    REACTIONS,
    Clause,
    draw_plan,
    put_together,
)
from faithkit.records import Turn

CONTRAST_RATE = 0.02  # of clauses with `not`
BOTH_RATE = 0.75  # of hallucinated replies with two clauses that are wrong in both
REMARK_RATE = 0.15  # of replies with a harmless first-person remark
SUBJECTIVE_REMARK_RATE = 0.7  # the same of faithful ones whose partner makes a subjective remark


@dataclass(slots=True)
class Reply:
    """One reply with all that is known of it."""

    text: str
    kind: str  # a key of hallucinate.RATES, or faithful, uncooperative, generic
    severity: str  # evident, subtle, or none
    marks: list[tuple[int, int, str]]  # start, end, kind
    tags: tuple[str, ...]
    vrm: list[str]
    truth: str  # what the knowledge says on the matter

    @property
    def target(self) -> str:
        """The judgement that this reply deserves."""
        return h.judgement(self.kind, [self.text[start:end] for start, end, _ in self.marks], self.truth)


@dataclass(slots=True)
class Exchange:
    """One turn: the knowledge, what was said before, a faithful reply and its hallucinated partner."""

    domain: str
    topic: str
    sentences: list[str]
    history: tuple[Turn, ...]
    faithful: Reply
    hallucinated: Reply
    empty: str  # a reply that says nothing
    true_clause: str  # what the faithful reply says of its main fact
    wrong_clause: str  # what the hallucinated one says instead; the same where it only adds a remark
    hallucinates: bool  # which of the two comes first; in layouts that show one, which
    edited: bool  # whether the faithful one was made from the other, as FaithDial's are

    @property
    def generic(self) -> Reply:
        """The reply that says nothing."""
        return Reply(self.empty, "generic", "none", [], ("Generic",), ["Acknowledgment"], "")


def exchanges(split: str, seed: int, number: int, num_turns: int) -> list[Exchange]:
    """The turns of dialogue `number`: the same for the same arguments, whatever was made before."""
    random = Random(f"{seed}:{split}:{number}").random
    domain = pick(random, DOMAINS)
    state = State(domain, domain.full.format(word(random, split)), split)
    return [_exchange(random, state) for _ in range(num_turns)]


@cache
def _by_category(domain: Domain) -> dict[str, tuple[int, ...]]:
    kinds = [h.category(relation) for relation in domain.relations]
    return {kind: tuple(i for i, k in enumerate(kinds) if k == kind) for kind in kinds}


@cache
def _contrastable(domain: Domain) -> tuple[bool, ...]:
    return tuple(h.can_contrast(relation) for relation in domain.relations)


def _exchange(random: Random01, state: State) -> Exchange:
    domain, relations = state.domain, state.domain.relations
    # Everything but the label is drawn before the label: neither the knowledge nor the words around can hint at it.
    kind = h.draw_kind(random)
    categories = _by_category(domain)
    if kind in (h.ENTITY_SWAP, h.NUMBER_SWAP) and kind not in categories:
        kind = h.CONTRADICTION
    focus = pick(random, categories[kind]) if kind in categories else int(random() * len(relations))
    facts = know(random, state, focus)
    sentences = write_sentences(random, state, [fact.clause for fact in facts])
    extra = unknown(random, domain, facts)
    asks_unknown = random() < 0.25
    admits = asks_unknown and random() < 0.6
    focal = next(fact for fact in facts if fact.place == focus)
    said = [focal]
    if len(facts) > 1 and random() < 0.6:
        said.insert(0 if random() < 0.5 else 1, pick(random, [fact for fact in facts if fact is not focal]))
    asked = extra if asks_unknown else pick(random, said if random() < 0.85 else facts).place
    hallucinates = random() < 0.5
    seeker = _seeker(random, state, relations[asked].question)
    history = (*state.history, seeker)
    topic = relations[asked].topic if admits else None
    plan = draw_plan(random, domain.name, state.full, topic)
    remarks = SUBJECTIVE_REMARK_RATE if kind == h.SUBJECTIVE else REMARK_RATE
    remark = int(random() * len(PERSONAL)) if random() < remarks else None

    clauses = [true_clause(random, state, fact) for fact in said]
    text, _ = put_together(plan, clauses, Clause(PERSONAL[remark][1]) if remark is not None else None)
    answered = admits or any(fact.place == asked for fact in said)
    truth = " and ".join(fact.clause for fact in said)
    vrm = [*(["Acknowledgment"] if plan.opener else []), "Edification", *(["Question"] if "?" in text else [])]
    faithful = Reply(
        text, "faithful" if answered else "uncooperative", "none", [],
        ("Entailment",) if answered else ("Entailment", "Uncooperative"), vrm, truth,
    )  # fmt: skip

    wrong_remark = Clause(PERSONAL[remark][1]) if remark is not None else None
    both, place = random() < BOTH_RATE, said.index(focal)
    wrong_clauses, severity = clauses, "evident"
    if kind == h.SUBJECTIVE:
        claim = PERSONAL[remark if remark is not None else int(random() * len(PERSONAL))][0]
        wrong_remark = Clause(claim, 0, len(claim), kind)
    else:
        new = unknown(random, domain, facts) if admits else extra
        targets = range(len(said)) if both else (place,)
        wrong_clauses, severity = _wrong_clauses(random, state, kind, facts, said, clauses, targets, new)
    wrong_text, marks = put_together(plan, wrong_clauses, wrong_remark)
    partial = len(wrong_clauses) > len(marks) or kind == h.SUBJECTIVE
    if kind in (h.ADDITION, h.SUBJECTIVE):
        truth = " and ".join(fact.clause for fact in facts)
    elif not both:
        truth = focal.clause
    hallucinated = Reply(
        wrong_text, kind, severity, marks, ("Hallucination", "Entailment") if partial else ("Hallucination",),
        ["Disclosure", *vrm] if kind == h.SUBJECTIVE else vrm,
        truth,
    )  # fmt: skip
    state.history += (seeker, Turn(speaker="wizard", text=text))
    empty, edited = pick(random, GENERIC), random() < 0.75
    return Exchange(
        domain.name, state.full, sentences, history, faithful, hallucinated, empty,
        clauses[place].text, wrong_clauses[place].text, hallucinates, edited,
    )  # fmt: skip


def _seeker(random: Random01, state: State, question: str) -> Turn:
    if state.history:
        text = f"{pick(random, REACTIONS)} {question}" if random() < 0.7 else question
    else:
        text = f"{pick(random, GREETINGS).format(state.full)} {question}"
    return Turn(speaker="seeker", text=text)


def true_clause(random: Random01, state: State, fact: Fact) -> Clause:
    """A clause that says the fact."""
    relation = state.domain.relations[fact.place]
    if random() < CONTRAST_RATE and _contrastable(state.domain)[fact.place]:
        other = draw(random, relation.values, state.split, unlike=fact.value)
        return h.contrast(random, relation, fact.value, other, wrong=False)
    return h.say_clause(random, relation, fact.value)


def _wrong_clauses(
    random: Random01,
    state: State,
    kind: str,
    facts: list[Fact],
    said: list[Fact],
    clauses: list[Clause],
    targets: Sequence[int],
    new: int,
) -> tuple[list[Clause], str]:
    """The clauses with those at `targets` made wrong, and how hard that is to see; `new` is a relation not known."""
    wrong, severities = list(clauses), set()
    for i in targets:
        if kind == h.ADDITION:
            relation = state.domain.relations[new]
            text = h.say_clause(random, relation, draw(random, relation.values, state.split)).text
            wrong[i] = Clause(text, 0, len(text), kind)
            new = unknown(random, state.domain, [*facts, Fact(new, None, "")])
        else:
            wrong[i], severity = wrong_clause(random, state, said[i], facts)
            severities.add(severity)
    subtle = "subtle" in severities or len(targets) < len(said)
    return wrong, "subtle" if subtle else "evident"


def wrong_clause(random: Random01, state: State, fact: Fact, facts: list[Fact]) -> tuple[Clause, str]:
    """A clause that says otherwise, with what is wrong in it marked, and how hard that is to see."""
    relation = state.domain.relations[fact.place]
    other, severity = h.wrong_value(random, state.domain, fact, facts, state.split)
    if random() < CONTRAST_RATE and _contrastable(state.domain)[fact.place]:
        return h.contrast(random, relation, fact.value, other, wrong=True), "subtle"
    clause = h.say_clause(random, relation, other, wrong=True)
    if not relation.say[0].before and not relation.say[0].after:
        clause = Clause(clause.text, 0, len(clause.text), clause.kind)
    return clause, severity
