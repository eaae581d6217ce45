"""One invented dialogue: a seeker asks about one thing, a wizard answers from a knowledge that changes with every turn."""

from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

from common.records import Turn
from data_modules.embedded import hallucinate as h
from data_modules.embedded.facts import Domain, Year, draw
from data_modules.embedded.hallucinate import Fact
from data_modules.embedded.lexicon import Random01, pick, word
from data_modules.embedded.more_domains import DOMAINS
from data_modules.embedded.phrasing import (
    GENERIC,
    GREETINGS,
    PERSONAL,
    REACTIONS,
    Clause,
    draw_plan,
    put_together,
)

BOTH_RATE = 0.6  # of hallucinated replies with two clauses that are wrong in both
REMARK_RATE = 0.2  # of replies with a harmless first-person remark


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


@dataclass(slots=True)
class _State:
    domain: Domain
    full: str
    split: str
    values: dict[int, Any] = field(default_factory=dict)
    history: list[Turn] = field(default_factory=list)


def exchanges(split: str, seed: int, number: int, num_turns: int) -> list[Exchange]:
    """The turns of dialogue `number`: the same for the same arguments, whatever was made before."""
    random = Random(f"{seed}:{split}:{number}").random
    domain = pick(random, DOMAINS)
    state = _State(domain, domain.full.format(word(random, split)), split)
    return [_exchange(random, state) for _ in range(num_turns)]


@cache
def _by_category(domain: Domain) -> dict[str, tuple[int, ...]]:
    kinds = [h.category(relation) for relation in domain.relations]
    return {kind: tuple(i for i, k in enumerate(kinds) if k == kind) for kind in kinds}


@cache
def _contrastable(domain: Domain) -> tuple[bool, ...]:
    return tuple(h.can_contrast(relation) for relation in domain.relations)


def _exchange(random: Random01, state: _State) -> Exchange:
    domain, relations = state.domain, state.domain.relations
    # Everything but the label is drawn before the label: neither the knowledge nor the words around can hint at it.
    kind = h.draw_kind(random)
    categories = _by_category(domain)
    if kind in (h.ENTITY_SWAP, h.NUMBER_SWAP) and kind not in categories:
        kind = h.CONTRADICTION
    focus = pick(random, categories[kind]) if kind in categories else int(random() * len(relations))
    facts = _know(random, state, focus)
    sentences = _sentences(random, state, [fact.clause for fact in facts])
    extra = _unknown(random, domain, facts)
    asks_unknown = random() < 0.25
    admits = asks_unknown and random() < 0.6
    focal = next(fact for fact in facts if fact.index == focus)
    said = [focal]
    if len(facts) > 1 and random() < 0.6:
        said.insert(0 if random() < 0.5 else 1, pick(random, [fact for fact in facts if fact is not focal]))
    if asks_unknown:
        asked = extra
    else:
        asked = pick(random, said if random() < 0.85 else facts).index
    hallucinates = random() < 0.5
    seeker = _seeker(random, state, relations[asked].question)
    history = (*state.history, seeker)
    topic = relations[asked].topic if admits else None
    plan = draw_plan(random, domain.name, state.full, topic)
    remark = int(random() * len(PERSONAL)) if random() < REMARK_RATE else None

    clauses = [_true_clause(random, state, fact) for fact in said]
    text, _ = put_together(plan, clauses, Clause(PERSONAL[remark][1]) if remark is not None else None)
    answered = admits or any(fact.index == asked for fact in said)
    truth = " and ".join(fact.clause for fact in said)
    vrm = [*(["Acknowledgment"] if plan.opener else []), "Edification", *(["Question"] if "?" in text else [])]
    faithful = Reply(
        text, "faithful" if answered else "uncooperative", "none", [],
        ("Entailment",) if answered else ("Entailment", "Uncooperative"), vrm, truth,
    )  # fmt: skip

    place = said.index(focal)
    wrong_clauses, severity = list(clauses), "evident"
    wrong_remark = Clause(PERSONAL[remark][1]) if remark is not None else None
    both = random() < BOTH_RATE
    if kind == h.SUBJECTIVE:
        claim = PERSONAL[remark if remark is not None else int(random() * len(PERSONAL))][0]
        wrong_remark = Clause(claim, 0, len(claim), kind)
    else:
        index = _unknown(random, domain, facts) if admits else extra
        for i, fact in enumerate(said):
            if i != place and not both:
                continue
            if kind == h.ADDITION:
                added = h.say_clause(random, relations[index], draw(random, relations[index].values, state.split))
                wrong_clauses[i] = Clause(added.text, 0, len(added.text), kind)
                index = _unknown(random, domain, [*facts, Fact(index, None, "")])
            else:
                wrong_clauses[i], one = _wrong_clause(random, state, fact, facts)
                severity = one if i == place else severity
        if len(said) == 2 and not both:
            severity = "subtle"
    wrong_text, marks = put_together(plan, wrong_clauses, wrong_remark)
    partial = len(wrong_clauses) > len(marks) or kind == h.SUBJECTIVE
    if kind in (h.ADDITION, h.SUBJECTIVE):
        truth = " and ".join(fact.clause for fact in facts)
    else:
        truth = said[place].clause
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


def _unknown(random: Random01, domain: Domain, facts: list[Fact]) -> int:
    """A relation of which the knowledge says nothing."""
    known = [fact.index for fact in facts]
    while (index := int(random() * len(domain.relations))) in known:
        pass
    return index


def _know(random: Random01, state: _State, focus: int) -> list[Fact]:
    """The facts that a turn's knowledge holds: the focus, often one it can be mixed up with, and others."""
    domain = state.domain
    chosen = [focus]
    if domain.twins[focus] and random() < float(os.environ.get("E_TWIN","0.5")):
        chosen.append(pick(random, domain.twins[focus]))
    roll = random()
    a,b,c=[float(x) for x in os.environ.get("E_WANT","0.35,0.9,1.1").split(",")]
    wanted = 1 if roll < a else 2 if roll < b else 3 if roll < c else 4
    while len(chosen) < wanted:
        index = int(random() * len(domain.relations))
        if index not in chosen:
            chosen.append(index)
    for i in range(len(chosen) - 1, 0, -1):
        j = int(random() * (i + 1))
        chosen[i], chosen[j] = chosen[j], chosen[i]
    return [Fact(i, (v := _value(random, state, i)), h.know_clause(random, domain.relations[i], v)) for i in chosen]


def _value(random: Random01, state: _State, index: int) -> Any:
    values = state.values
    if index not in values and not state.domain.twins[index]:
        values[index] = draw(random, state.domain.relations[index].values, state.split)
    elif index not in values:
        # Relations that share their values get them together, all different; years in the order of the relations.
        drawn: list[Any] = []
        group = sorted((index, *state.domain.twins[index]))
        for one in group:
            value = draw(random, state.domain.relations[one].values, state.split, unlike=drawn[0] if drawn else None)
            drawn.append(value)
        if isinstance(drawn[0], Year):
            drawn.sort()
        values.update(zip(group, drawn, strict=True))
    return values[index]


def _sentences(random: Random01, state: _State, clauses: list[str]) -> list[str]:
    """The knowledge: every sentence names the thing, so that no sentence stands in two splits."""
    full, intro = state.full, state.domain.intro
    name = full[0].upper() + full[1:]
    roll = random()
    taken = 2 if len(clauses) > 1 and random() < 0.7 else 1
    said, rest = " and ".join(clauses[:taken]), clauses[taken:]
    if roll < 0.2:
        first = f"{name} is {intro} that {said}"
    elif roll < 0.4:
        first = f"{name}, {intro}, {said}"
    else:
        first = f"{name} {said}"
    sentences = [first + "."]
    while rest:
        taken = 2 if len(rest) > 1 and random() < 0.5 else 1
        sentences.append(f"{name} {' and '.join(rest[:taken])}.")
        rest = rest[taken:]
    return sentences


def _seeker(random: Random01, state: _State, question: str) -> Turn:
    if state.history:
        text = f"{pick(random, REACTIONS)} {question}" if random() < 0.7 else question
    else:
        text = f"{pick(random, GREETINGS).format(state.full)} {question}"
    return Turn(speaker="seeker", text=text)


def _true_clause(random: Random01, state: _State, fact: Fact) -> Clause:
    relation = state.domain.relations[fact.index]
    if random() < _CONTRAST and _contrastable(state.domain)[fact.index]:
        other = draw(random, relation.values, state.split, unlike=fact.value)
        return h.contrast(random, relation, fact.value, other, wrong=False)
    return h.say_clause(random, relation, fact.value)


def _wrong_clause(random: Random01, state: _State, fact: Fact, facts: list[Fact]) -> tuple[Clause, str]:
    relation = state.domain.relations[fact.index]
    other, severity = h.wrong_value(random, state.domain, fact, facts, state.split)
    if random() < _CONTRAST and _contrastable(state.domain)[fact.index]:
        return h.contrast(random, relation, fact.value, other, wrong=True), "subtle"
    clause = h.say_clause(random, relation, other, wrong=True)
    if not relation.say[0].before and not relation.say[0].after:
        clause = Clause(clause.text, 0, len(clause.text), clause.kind)
    return clause, severity


import os

_CONTRAST = float(os.environ.get('E_CONTRAST','0.06'))  # of clauses with `not`
