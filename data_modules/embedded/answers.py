"""Answers of several sentences to sources of several passages, as in retrieval: most of each answer is right.

A source holds all that is known of one topic. Whatever an answer adds is absent from it, so every mark is exact.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from data_modules.embedded import hallucinate as h
from data_modules.embedded.clauses import added_clause, true_clause, wrong_clause
from data_modules.embedded.dialogue import REMARK_RATE
from data_modules.embedded.domains import DOMAINS
from data_modules.embedded.facts import knowledge_wording
from data_modules.embedded.hallucinate import Fact
from data_modules.embedded.knowledge import DialogueState, draw_facts, draw_unknown_relation, write_sentences
from data_modules.embedded.lexicon import Random01, pick, word
from data_modules.embedded.phrasing import PERSONAL, Clause, Mark, Plan, draw_plan, write_reply

MODELS = {"chat-small": 0.25, "chat-medium": 0.15, "chat-large": 0.08}  # rates of hallucinated sentences
ONE_WRONG_RATE = 0.7  # of hallucinated sentences with two clauses, those with one wrong
IMPLICIT_RATE = 0.2  # of additions, those annotated as true, though the source does not state them


class MarkedSpan(NamedTuple):
    """A part of an answer that its source does not support, in characters."""

    start: int
    end: int
    kind: str
    severity: str
    implicit_true: bool
    due_to_null: bool  # it claims something about a field that the source's table leaves empty

    @property
    def type(self) -> str:
        return h.span_type(self.kind, self.severity)


@dataclass(frozen=True, slots=True)
class Answer:
    """One model's answer to a source."""

    model: str
    text: str
    marks: tuple[MarkedSpan, ...]


@dataclass(frozen=True, slots=True)
class RagSource:
    """All that is known of one topic, as question, passages and table, with the models' answers."""

    number: int
    topic: str
    question: str
    passages: tuple[str, ...]
    table: dict[str, Any]
    answers: tuple[Answer, ...]


class Topic(NamedTuple):
    """The facts that the sentences of an answer draw on."""

    state: DialogueState
    facts: list[Fact]
    null: int  # the relation that the table lists without a value


def rag_sources(split: str, num_answers: int, seed: int) -> Iterator[RagSource]:
    """Yields sources with an answer of every model; the last has fewer where `num_answers` is reached."""
    for number, first in enumerate(range(0, num_answers, len(MODELS))):
        yield _source(split, seed, number, list(MODELS)[: num_answers - first])


def _source(split: str, seed: int, number: int, models: Sequence[str]) -> RagSource:
    random = Random(f"rag:{seed}:{split}:{number}").random
    domain = pick(random, DOMAINS)
    state = DialogueState(domain, domain.full_name.format(word(random, split)), split)
    passages, facts = _passages(random, state)
    null = draw_unknown_relation(random, domain, facts)
    table = {"name": state.full_name, "category": domain.name, "facts": _table(random, state, facts, null)}
    question = domain.relations[pick(random, [fact.relation for fact in facts])].question
    answers = [_answer(random, Topic(state, facts, null), model) for model in models]
    return RagSource(
        number=number,
        topic=state.full_name,
        question=f"What is known of {state.full_name}? {question}",
        passages=tuple(passages),
        table=table,
        answers=tuple(answers),
    )


def _passages(random: Random01, state: DialogueState) -> tuple[list[str], list[Fact]]:
    facts: dict[int, Fact] = {}
    passages = []
    while len(facts) < 4:  # a passage adds at most four facts, so some relation stays unknown
        known = draw_facts(random, state, int(random() * len(state.domain.relations)))
        facts |= {fact.relation: fact for fact in known if fact.relation not in facts}
        passages.append(" ".join(write_sentences(random, state, [fact.clause for fact in known])))
    return passages, list(facts.values())


def _table(random: Random01, state: DialogueState, facts: list[Fact], null: int) -> dict[str, str | None]:
    names = [relation.name for relation in state.domain.relations]
    return {names[fact.relation]: knowledge_wording(random, fact.value) for fact in facts} | {names[null]: None}


def _answer(random: Random01, topic: Topic, model: str) -> Answer:
    stated, rest = [], list(topic.facts)
    while rest:  # every fact once, one or two a sentence
        stated.append([rest.pop(int(random() * len(rest))) for _ in range(min(len(rest), 1 + (random() < 0.4)))])
    text, marks = "", []
    for place, facts in enumerate(stated):
        kind = h.draw_kind(random) if random() < MODELS[model] else ""
        plan = draw_plan(random, topic.state.domain.name, topic.state.full_name, None)
        if place > 0:
            plan = plan._replace(opener="")
        if place < len(stated) - 1:
            plan = plan._replace(tail="")
        sentence, found = _sentence(random, topic, facts, kind, plan)
        text += " " if text else ""
        marks += [mark._replace(start=mark.start + len(text), end=mark.end + len(text)) for mark in found]
        text += sentence
    return Answer(model, text, tuple(marks))


def _sentence(random: Random01, topic: Topic, facts: list[Fact], kind: str, plan: Plan) -> tuple[str, list[MarkedSpan]]:
    """Writes a sentence that states the facts; with a kind of hallucination, some of it is wrong and marked."""
    state = topic.state
    claim, harmless = pick(random, PERSONAL)
    clauses = [true_clause(random, state, fact, h.QUOTED) for fact in facts]
    remark = Clause(harmless) if random() < REMARK_RATE / 3 else None
    targets: Sequence[int] = range(len(facts)) if random() > ONE_WRONG_RATE else (int(random() * len(facts)),)
    severities, due_to_null = {}, set()
    if kind == h.SUBJECTIVE:
        remark = Clause(claim, 0, len(claim), kind)
    elif kind == h.ADDITION:
        for i in targets:
            relation = topic.null if random() < 0.5 else draw_unknown_relation(random, state.domain, topic.facts)
            clauses[i] = added_clause(random, state, relation, h.QUOTED)
            severities[i] = "evident" if len(facts) == 1 else "subtle"  # beside a right clause it is easily missed
            if relation == topic.null:
                due_to_null.add(i)
    elif kind:
        for i in targets:
            clauses[i], severities[i] = wrong_clause(random, state, facts[i], topic.facts, h.QUOTED)
    text, marks = write_reply(plan, clauses, remark)
    # The marks are those of the wrong clauses, in order, and then that of a subjective remark.
    wrong = [*(i for i, clause in enumerate(clauses) if clause.end), len(clauses)]
    return text, [
        _annotate(random, mark, severities.get(i, "subtle"), i in due_to_null)
        for mark, i in zip(marks, wrong, strict=False)
    ]


def _annotate(random: Random01, mark: Mark, severity: str, due_to_null: bool) -> MarkedSpan:
    start, end, kind = mark
    implicit_true = random() < IMPLICIT_RATE and kind == h.ADDITION and not due_to_null
    return MarkedSpan(start, end, kind, severity, implicit_true, due_to_null)
