"""Answers of several sentences to sources of several passages, as retrieval gives them: most of an answer is right.

A source is all that is known of one thing. What an answer adds stands nowhere in it, so every mark is exact.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from data_modules.embedded import hallucinate as h
from data_modules.embedded.dialogue import REMARK_RATE, true_clause, wrong_clause
from data_modules.embedded.domains import DOMAINS
from data_modules.embedded.facts import draw, know_value
from data_modules.embedded.hallucinate import Fact
from data_modules.embedded.knowledge import State, know, unknown
from data_modules.embedded.knowledge import sentences as write_sentences
from data_modules.embedded.lexicon import Random01, pick, word
from data_modules.embedded.phrasing import PERSONAL, Clause, Mark, draw_plan, put_together

MODELS = {"chat-small": 0.25, "chat-medium": 0.15, "chat-large": 0.08}  # rates of hallucinated sentences
WRONG_RATE = 0.7  # of hallucinated sentences with two clauses that are wrong in one alone
IMPLICIT_RATE = 0.2  # of additions that are marked as true, though the source does not say so


class Marked(NamedTuple):
    """A stretch of an answer, in characters, that its source does not support."""

    start: int
    end: int
    kind: str
    severity: str
    implicit_true: bool
    due_to_null: bool

    @property
    def type(self) -> str:
        return h.span_type(self.kind, self.severity)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one model said of a source."""

    model: str
    text: str
    marks: tuple[Marked, ...]


@dataclass(frozen=True, slots=True)
class RagSource:
    """All that is known of one thing, in three forms, and what the models said of it."""

    number: int
    topic: str
    question: str
    passages: tuple[str, ...]
    table: dict[str, Any]
    answers: tuple[Answer, ...]


def rag_sources(split: str, num_answers: int, seed: int) -> Iterator[RagSource]:
    """Sources with an answer of every model; the last may have fewer, so that there are `num_answers`."""
    for number, first in enumerate(range(0, num_answers, len(MODELS))):
        yield _source(split, seed, number, list(MODELS)[: num_answers - first])


def _source(split: str, seed: int, number: int, models: Sequence[str]) -> RagSource:
    random = Random(f"rag:{seed}:{split}:{number}").random
    domain = pick(random, DOMAINS)
    state = State(domain, domain.full.format(word(random, split)), split)
    facts: dict[int, Fact] = {}
    passages = []
    while len(facts) < 4:  # one passage brings at most four, so that something stays unknown
        known = know(random, state, int(random() * len(domain.relations)))
        facts |= {fact.place: fact for fact in known if fact.place not in facts}
        passages.append(" ".join(write_sentences(random, state, [fact.clause for fact in known])))
    null = unknown(random, domain, list(facts.values()))
    table = {
        "name": state.full,
        "category": domain.name,
        "facts": {domain.relations[place].name: know_value(random, fact.value) for place, fact in facts.items()}
        | {domain.relations[null].name: None},
    }
    asked = domain.relations[pick(random, list(facts))].question
    answers = [_answer(random, state, list(facts.values()), null, model) for model in models]
    return RagSource(
        number, state.full, f"What is known of {state.full}? {asked}", tuple(passages), table, tuple(answers)
    )


def _answer(random: Random01, state: State, facts: list[Fact], null: int, model: str) -> Answer:
    told, rest = [], list(facts)
    while rest:  # every fact once, one or two a sentence
        told.append([rest.pop(int(random() * len(rest))) for _ in range(min(len(rest), 1 + (random() < 0.4)))])
    text, marks = "", []
    for place, said in enumerate(told):
        sentence, wrong = _sentence(random, state, facts, said, null, MODELS[model], place == 0, place == len(told) - 1)
        text += " " if text else ""
        marks += [mark._replace(start=mark.start + len(text), end=mark.end + len(text)) for mark in wrong]
        text += sentence
    return Answer(model, text, tuple(marks))


def _sentence(
    random: Random01,
    state: State,
    facts: list[Fact],
    said: list[Fact],
    null: int,
    rate: float,
    first: bool,
    last: bool,
) -> tuple[str, list[Marked]]:
    kind = h.draw_kind(random) if random() < rate else ""
    plan = draw_plan(random, state.domain.name, state.full, None)
    plan = plan._replace(opener=plan.opener if first else "", tail=plan.tail if last else "")
    claim, harmless = pick(random, PERSONAL)
    clauses = [true_clause(random, state, fact) for fact in said]
    remark = Clause(harmless) if random() < REMARK_RATE / 3 else None
    targets = range(len(said)) if random() > WRONG_RATE else (int(random() * len(said)),)
    severities, due_to_null = {}, set()
    if kind == h.SUBJECTIVE:
        remark = Clause(claim, 0, len(claim), kind)
    for i in targets if kind and kind != h.SUBJECTIVE else ():
        if kind != h.ADDITION:
            clauses[i], severities[i] = wrong_clause(random, state, said[i], facts)
            continue
        new = null if random() < 0.5 else unknown(random, state.domain, facts)
        relation = state.domain.relations[new]
        text = h.say_clause(random, relation, draw(random, relation.values, state.split)).text
        clauses[i] = Clause(text, 0, len(text), kind)
        severities[i] = "evident" if len(said) == 1 else "subtle"  # beside a clause that is right it is easily missed
        if new == null:
            due_to_null.add(i)
    text, found = put_together(plan, clauses, remark)
    wrong = [i for i, clause in enumerate(clauses) if clause.end]
    return text, [_marked(random, mark, severities.get(i, "subtle"), i in due_to_null)
                  for mark, i in zip(found, [*wrong, len(clauses)], strict=False)]  # fmt: skip


def _marked(random: Random01, mark: Mark, severity: str, due_to_null: bool) -> Marked:
    start, end, kind = mark
    implicit = random() < IMPLICIT_RATE and kind == h.ADDITION and not due_to_null
    return Marked(start, end, kind, severity, implicit, due_to_null)
