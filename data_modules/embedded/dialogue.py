"""Invented dialogues: a seeker asks about one topic, and a wizard answers from knowledge that changes every turn."""

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import NamedTuple

from data_modules.embedded.domains import DOMAINS, Domain, Slot
from data_modules.embedded.facts import (
    ADDITION,
    CONTRADICTION,
    ENTITY_SWAP,
    NUMBER_SWAP,
    REWORDED,
    SUBJECTIVE,
    DialogueState,
    Fact,
    added_clause,
    draw_facts,
    draw_kind,
    draw_unknown_relation,
    judgement,
    swap_kind,
    true_clause,
    write_sentences,
    wrong_clause,
)
from data_modules.embedded.phrasing import (
    GENERIC,
    GREETINGS,
    PERSONAL,
    REACTIONS,
    Clause,
    Mark,
    Plan,
    Random01,
    draw_plan,
    pick,
    word,
    write_reply,
)
from faithkit.records import Turn


@dataclass(slots=True)
class Reply:
    """A reply with its annotations."""

    text: str
    kind: str  # a key of facts.RATES, or faithful, uncooperative, generic
    severity: str  # evident, subtle, or none
    marks: list[Mark]  # its unsupported parts
    tags: tuple[str, ...]
    vrm: list[str]  # verbal response modes, as BEGIN annotates them
    truth: str  # what the knowledge states in place of the unsupported parts

    @property
    def target(self) -> str:
        """The judgement that this reply deserves."""
        return judgement(self.kind, [self.text[start:end] for start, end, _ in self.marks], self.truth)


@dataclass(slots=True)
class Exchange:
    """One turn: the knowledge, the history, a faithful reply and its hallucinated partner."""

    domain: str
    topic: str
    sentences: list[str]
    history: tuple[Turn, ...]
    faithful: Reply
    hallucinated: Reply
    generic_text: str
    true_clause: str  # states the main fact
    wrong_clause: str  # the hallucinated reply's version of it; equal where that only adds a remark
    hallucinated_first: bool  # the order of the two; layouts with one reply a turn show the first
    is_edited: bool  # the faithful reply was made from the hallucinated one, as FaithDial's are

    @property
    def generic(self) -> Reply:
        """The reply that says nothing."""
        return Reply(self.generic_text, "generic", "none", [], ("Generic",), ["Acknowledgment"], "")

    def shown_reply(self, *, generic: bool) -> Reply:
        """Returns the reply of a layout that has one a turn."""
        if generic:
            return self.generic
        return self.hallucinated if self.hallucinated_first else self.faithful


REMARK_RATE = 0.15  # of replies, those with a harmless first-person remark


class Outline(NamedTuple):
    """All that a turn's two replies share. It is drawn before them, so nothing in it can hint at the label."""

    kind: str  # of the hallucination
    facts: list[Fact]  # of the knowledge
    sentences: list[str]
    main: Fact  # the one that the hallucinated reply gets wrong
    stated: list[Fact]  # those that the faithful reply states, the main one among them
    unknown: int  # a relation that the knowledge does not mention
    asked: int  # the relation that the seeker asks about
    admits_ignorance: bool  # the wizard says that it does not know what was asked
    hallucinated_first: bool
    seeker: Turn
    plan: Plan
    remark: int | None  # which of PERSONAL


def exchanges(split: str, seed: int, number: int, num_turns: int) -> list[Exchange]:
    """Makes the first turns of dialogue `number`: always the same for the same arguments."""
    random = Random(f"{seed}:{split}:{number}").random
    domain = pick(random, DOMAINS)
    state = DialogueState(domain, domain.full_name.format(word(random, split)), split)
    made: list[Exchange] = []
    # Every draw comes from one generator, so the order of the calls below, and of those that they make, decides the
    # corpus: a change of it is a change of corpus.VERSION.
    for _ in range(num_turns):
        outline = _draw_outline(random, state)
        history = (*state.history, outline.seeker)
        clauses = [true_clause(random, state, fact, REWORDED) for fact in outline.stated]
        text, _ = write_reply(outline.plan, clauses, _harmless_remark(outline))
        answers = outline.admits_ignorance or any(fact.relation == outline.asked for fact in outline.stated)
        vrm = ["Edification"]
        if outline.plan.opener:
            vrm.insert(0, "Acknowledgment")
        if "?" in text:
            vrm.append("Question")
        kind = "faithful" if answers else "uncooperative"
        tags = ("Entailment",) if answers else ("Entailment", "Uncooperative")
        faithful = Reply(text, kind, "none", [], tags, vrm, _join_clauses(outline.stated))
        hallucinated, wrong = _hallucinated_reply(random, state, outline, clauses, vrm)
        state.history += (outline.seeker, Turn(speaker="wizard", text=text))
        main = outline.stated.index(outline.main)
        true_text, wrong_text = clauses[main].text, wrong[main].text
        generic_text, is_edited = pick(random, GENERIC), random() < 0.75
        # By position: keywords take twice as long, and tens of millions of rows are made of these.
        made.append(Exchange(
            state.domain.name, state.full_name, outline.sentences, history, faithful, hallucinated,
            generic_text, true_text, wrong_text, outline.hallucinated_first, is_edited,
        ))  # fmt: skip
    return made


def _draw_outline(random: Random01, state: DialogueState) -> Outline:
    domain, relations = state.domain, state.domain.relations
    by_kind = _relations_by_kind(domain)
    kind = draw_kind(random)
    if kind in (ENTITY_SWAP, NUMBER_SWAP) and kind not in by_kind:
        kind = CONTRADICTION  # the domain has no relation with names or numbers
    # Most additions replace a clause without a name or a number by such another.
    about = CONTRADICTION if kind == ADDITION and random() >= 0.15 else kind
    focus = pick(random, by_kind[about]) if about in by_kind else int(random() * len(relations))
    facts = draw_facts(random, state, focus)
    sentences = write_sentences(random, state, [fact.clause for fact in facts])
    unknown = draw_unknown_relation(random, domain, facts, closed=kind == ADDITION)
    asks_unknown = random() < 0.25
    admits_ignorance = asks_unknown and random() < 0.6
    main = next(fact for fact in facts if fact.relation == focus)
    # The faithful reply states the main fact, often with another before or after it.
    stated = [main]
    if len(facts) > 1 and random() < 0.6:
        place = 0 if random() < 0.5 else 1
        stated.insert(place, pick(random, [fact for fact in facts if fact is not main]))
    asked = unknown if asks_unknown else pick(random, stated if random() < 0.85 else facts).relation
    hallucinated_first = random() < 0.5
    question = relations[asked].question
    if state.history:
        text = f"{pick(random, REACTIONS)} {question}" if random() < 0.7 else question
    else:
        text = f"{pick(random, GREETINGS).format(state.full_name)} {question}"
    seeker = Turn(speaker="seeker", text=text)
    plan = draw_plan(random, domain.name, state.full_name, relations[asked].topic if admits_ignorance else None)
    # The partner of a subjective remark is a harmless one, so that having a remark gives nothing away.
    remark = int(random() * len(PERSONAL)) if kind == SUBJECTIVE or random() < REMARK_RATE else None
    return Outline(
        kind, facts, sentences, main, stated, unknown, asked, admits_ignorance, hallucinated_first, seeker, plan, remark
    )


@cache
def _relations_by_kind(domain: Domain) -> dict[str, tuple[int, ...]]:
    kinds = [swap_kind(relation) for relation in domain.relations]
    return {kind: tuple(i for i, k in enumerate(kinds) if k == kind) for kind in kinds}


def _hallucinated_reply(
    random: Random01, state: DialogueState, outline: Outline, clauses: list[Clause], faithful_vrm: list[str]
) -> tuple[Reply, list[Clause]]:
    """Makes the faithful reply's partner, and returns it with its clauses."""
    kind, stated = outline.kind, outline.stated
    both = random() < 0.75  # of two clauses both are wrong
    wrong, severity, remark = clauses, "evident", _harmless_remark(outline)
    if kind == SUBJECTIVE:
        assert outline.remark is not None, "a subjective reply has a remark"
        claim = PERSONAL[outline.remark][0]
        remark = Clause(claim, 0, len(claim), kind)
    else:
        # The relation that the wizard admits not to know is not what it then makes a claim about.
        unknown = outline.unknown
        if outline.admits_ignorance:
            unknown = draw_unknown_relation(random, state.domain, outline.facts, closed=kind == ADDITION)
        # The main clause becomes wrong, and none with names or numbers, as they are conspicuous.
        main, relations = stated.index(outline.main), state.domain.relations
        closed = [not isinstance(relations[fact.relation].values, Slot) for fact in stated]
        targets = [i for i, is_closed in enumerate(closed) if i == main or (both and is_closed)]
        wrong, severities = list(clauses), set()
        for i in targets:
            if kind == ADDITION:
                wrong[i] = added_clause(random, state, unknown, REWORDED)
                known = [*outline.facts, Fact(unknown, None, "")]
                unknown = draw_unknown_relation(random, state.domain, known, closed=True)
            else:
                wrong[i], severity = wrong_clause(random, state, stated[i], outline.facts, REWORDED)
                severities.add(severity)
        # A wrong clause is easily missed next to a correct one.
        severity = "subtle" if "subtle" in severities or len(targets) < len(stated) else "evident"
    text, marks = write_reply(outline.plan, wrong, remark)
    is_partly_true = len(wrong) > len(marks) or kind == SUBJECTIVE
    tags = ("Hallucination", "Entailment") if is_partly_true else ("Hallucination",)
    vrm = ["Disclosure", *faithful_vrm] if kind == SUBJECTIVE else faithful_vrm
    # The facts that the reply should have kept to.
    truth = outline.facts if kind in (ADDITION, SUBJECTIVE) else stated if both else [outline.main]
    return Reply(text, kind, severity, marks, tags, vrm, _join_clauses(truth)), wrong


def _harmless_remark(outline: Outline) -> Clause | None:
    return Clause(PERSONAL[outline.remark][1]) if outline.remark is not None else None


def _join_clauses(facts: list[Fact]) -> str:
    return " and ".join(fact.clause for fact in facts)
