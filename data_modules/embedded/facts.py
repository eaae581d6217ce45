"""Domains of invented topics, and the facts of a turn: draws their values, and writes sentences and clauses of replies.

The relations of a domain and the wordings of values are in `domains.txt` and `values.txt`. A clause states a fact
rightly, or is edited into a contradiction, an addition, a remark or a swap.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from data_modules.embedded.phrasing import Clause, Random01, in_words, person, pick, word
from data_modules.reading.formats import read_sections
from faithkit.records import Turn

YEAR, COUNT, PERSON, PLACE = "year", "count", "person", "place"
CONTRADICTION, ADDITION, SUBJECTIVE = "contradiction", "addition", "subjective"
ENTITY_SWAP, NUMBER_SWAP = "entity_swap", "number_swap"
RATES = {CONTRADICTION: 0.40, ADDITION: 0.32, SUBJECTIVE: 0.12, ENTITY_SWAP: 0.09, NUMBER_SWAP: 0.07}
# RAGTruth's types distinguish contradicting the source (conflict) from going beyond it (baseless).
KIND_TO_TYPE = {
    CONTRADICTION: "conflict",
    ENTITY_SWAP: "conflict",
    NUMBER_SWAP: "conflict",
    ADDITION: "baseless",
    SUBJECTIVE: "baseless",
}
CONTRAST_RATE = 0.02  # of clauses with `not`


class Value(NamedTuple):
    """One value with its wordings."""

    in_knowledge: tuple[str, ...]
    in_reply: tuple[str, ...]


class Slot(NamedTuple):
    """An open set of values: years, counts from low to high, names."""

    kind: str
    low: int = 0
    high: int = 0


class Template(NamedTuple):
    """A verb phrase around a value; both sides are empty where the values are whole verb phrases."""

    before: str
    after: str


class Relation(NamedTuple):
    """A relation of a domain: an attribute of its topics.

    Args:
        question: A seeker's question about it.
        topic: The same as an indirect question.
        knowledge_templates: Verb phrases of the knowledge.
        reply_templates: Verb phrases of replies.
        values: A closed set, or a slot. Relations of one domain that share their values can be mixed up.
    """

    name: str
    question: str
    topic: str
    knowledge_templates: tuple[Template, ...]
    reply_templates: tuple[Template, ...]
    values: tuple[Value, ...] | Slot


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """A kind of topic: its names and its relations.

    Args:
        name: For example `bridge`; replies say "the bridge".
        full_name: A topic's name in running text, for example "the {} Bridge".
        intro: The kind with its article, for example "a road bridge".
        confusable: For each relation, the indices of the others that share its values.
    """

    name: str
    full_name: str
    intro: str
    relations: tuple[Relation, ...]
    confusable: tuple[tuple[int, ...], ...]


def draw_value(random: Random01, options: tuple[Value, ...] | Slot, split: str, unlike: object = None) -> object:
    """Draws a value of the set or slot that is clearly different from `unlike`."""
    while True:
        value: object
        if not isinstance(options, Slot):
            value = pick(random, options)
        elif options.kind == PERSON:
            value = person(random, split)
        elif options.kind == PLACE:
            value = word(random, split)
        elif options.kind == YEAR:
            value = Year(1780 + int(random() * 230))
        else:
            count = options.low + int(random() * (options.high - options.low))
            value = count if count < 100 else count - count % (10 if count < 1000 else 50)
        if unlike is None or not _is_close(value, unlike):
            return value


def knowledge_wording(random: Random01, value: object) -> str:
    """Words a value for the knowledge."""
    if isinstance(value, Value):
        return pick(random, value.in_knowledge)
    return f"{value:,}" if type(value) is int else str(value)


def reply_wording(random: Random01, value: object, verbatim_rate: float) -> str:
    """Words a value for a reply, or, with probability `verbatim_rate`, as the knowledge does."""
    if isinstance(value, Value):
        return pick(random, value.in_knowledge if random() < verbatim_rate else value.in_reply)
    if type(value) is int:
        if random() < verbatim_rate:
            return f"{value:,}"
        if value < 100 or (value < 10_000 and value % 100 == 0):
            return in_words(value)
        rounded = round(value, -2) if value >= 1000 else round(value, -1)
        return f"about {rounded:,}" if rounded != value else f"{value:,}"
    if isinstance(value, Year) and random() >= verbatim_rate:
        return f"the {value[:3]}0s"
    return str(value)


class Year(str):
    """A year: a separate type, so that it is not taken for a count."""

    __slots__ = ()


def _wordings(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in text.split("|"))


def _read_domains() -> Iterator[Domain]:
    values = {
        name: tuple(Value(*map(_wordings, line.split(">"))) for line in lines)
        for name, lines in read_sections(Path(__file__).with_name("values.txt"))
    }
    for title, lines in read_sections(Path(__file__).with_name("domains.txt")):
        relations: list[Relation] = []
        rows = iter(lines)
        for row in rows:
            name, kind, question, topic = row.split(": ")
            knowledge, reply = ("{}", "{}") if kind.startswith("polar.") else next(rows).split(">")
            slot, *bounds = kind.split()
            options = Slot(slot, *map(int, bounds)) if slot in (YEAR, COUNT, PERSON, PLACE) else values[kind]
            of_knowledge, of_reply = (
                tuple(Template(*part.split("{}")) for part in _wordings(text)) for text in (knowledge, reply)
            )
            relations.append(Relation(name, question, topic, of_knowledge, of_reply, options))
        # A slot is known by its kind, a closed set by itself.
        sets = [one.values.kind if isinstance(one.values, Slot) else id(one.values) for one in relations]
        confusable = tuple(
            tuple(j for j, other in enumerate(sets) if j != i and other == one) for i, one in enumerate(sets)
        )
        name, full_name, intro = title.split(" | ")
        yield Domain(name, full_name, intro, tuple(relations), confusable)


def _is_close(value: object, other: object) -> bool:
    if isinstance(value, Year) and isinstance(other, Year):
        return abs(int(value) - int(other)) < 15
    if type(value) is int and type(other) is int:
        return 0.7 < value / max(other, 1) < 1.4
    return value == other


DOMAINS = tuple(_read_domains())


class Fact(NamedTuple):
    """One fact of the knowledge, with the clause that states it."""

    relation: int  # the relation's index in its domain
    value: Any
    clause: str


@dataclass(slots=True)
class DialogueState:
    """The state of a dialogue: its topic, the values drawn for it so far, and the turns so far."""

    domain: Domain
    full_name: str
    split: str
    values: dict[int, Any] = field(default_factory=dict)  # by relation
    history: list[Turn] = field(default_factory=list)


def draw_facts(random: Random01, state: DialogueState, focus: int) -> list[Fact]:
    """Draws the facts of a turn's knowledge: the focus, often a relation it can be mixed up with, and others."""
    domain = state.domain
    chosen = [focus]
    if domain.confusable[focus] and random() < 0.3:
        chosen.append(pick(random, domain.confusable[focus]))
    roll = random()
    num_wanted = 1 if roll < 0.4 else 2 if roll < 0.92 else 3
    while len(chosen) < num_wanted:
        index = int(random() * len(domain.relations))
        if index not in chosen:
            chosen.append(index)
    for i in range(len(chosen) - 1, 0, -1):  # shuffled, so that the focus may be anywhere
        j = int(random() * (i + 1))
        chosen[i], chosen[j] = chosen[j], chosen[i]
    facts = []
    for relation in chosen:
        # A relation keeps its value in a dialogue; it is drawn at its first use.
        if relation not in state.values:
            if confusable := domain.confusable[relation]:
                # Values that can be mixed up are unlike the first one's, and years are in chronological order.
                group = sorted((relation, *confusable))
                drawn: list[Any] = []
                for each in group:
                    options = domain.relations[each].values
                    drawn.append(draw_value(random, options, state.split, unlike=drawn[0] if drawn else None))
                if isinstance(drawn[0], Year):
                    drawn.sort()
                state.values.update(zip(group, drawn, strict=True))
            else:
                state.values[relation] = draw_value(random, domain.relations[relation].values, state.split)
        value = state.values[relation]
        before, after = pick(random, domain.relations[relation].knowledge_templates)
        facts.append(Fact(relation, value, f"{before}{knowledge_wording(random, value)}{after}"))
    return facts


def write_sentences(random: Random01, state: DialogueState, clauses: list[str]) -> list[str]:
    """Writes the knowledge. Every sentence names the topic, so that no sentence occurs in two splits."""
    full_name, intro = state.full_name, state.domain.intro
    name = full_name[0].upper() + full_name[1:]
    roll = random()
    num_taken = 2 if len(clauses) > 1 and random() < 0.7 else 1
    predicate, rest = " and ".join(clauses[:num_taken]), clauses[num_taken:]
    if roll < 0.2:
        first = f"{name} is {intro} that {predicate}"
    elif roll < 0.4:
        first = f"{name}, {intro}, {predicate}"
    else:
        first = f"{name} {predicate}"
    written = [first + "."]
    while rest:
        num_taken = 2 if len(rest) > 1 and random() < 0.5 else 1
        written.append(f"{name} {' and '.join(rest[:num_taken])}.")
        rest = rest[num_taken:]
    return written


def draw_unknown_relation(random: Random01, domain: Domain, facts: list[Fact], *, closed: bool = False) -> int:
    """Draws a relation that the knowledge does not mention; `closed` prefers those with a closed set of values.

    A new name or number would give an addition away.
    """
    known = [fact.relation for fact in facts]
    relations = domain.relations
    for _ in range(20):
        index = int(random() * len(relations))
        if index not in known and not (closed and isinstance(relations[index].values, Slot)):
            return index
    return next(i for i in range(len(relations)) if i not in known)


class Wording(NamedTuple):
    """Shares of what a reply says in the knowledge's words: faithful and hallucinated replies alike."""

    values: float  # a value in the words of the knowledge, or of knowledge about the wrong value
    phrases: float  # the verb phrase around it


# Where faithful replies repeat values, a wrong value is a word that the knowledge lacks, and counting words finds it.
# So dialogues reword values, and repeat verb phrases, which say nothing of the truth. Long answers quote, as real ones
# do.
REWORDED = Wording(values=0.3, phrases=0.25)
QUOTED = Wording(values=0.7, phrases=0.0)


def span_type(kind: str, severity: str) -> str:
    """Returns the span type (`faithkit.records`) of a kind of hallucination at a severity."""
    return f"{severity}_{KIND_TO_TYPE[kind]}"


def swap_kind(relation: Relation) -> str:
    """Returns the kind of hallucination that a wrong value of this relation is."""
    values = relation.values
    if not isinstance(values, Slot):
        return CONTRADICTION
    return ENTITY_SWAP if values.kind in (PERSON, PLACE) else NUMBER_SWAP


def draw_kind(random: Random01) -> str:
    """Draws a kind of hallucination according to RATES."""
    roll = random()
    for kind, rate in RATES.items():
        roll -= rate
        if roll < 0:
            return kind
    return CONTRADICTION


def reply_clause(random: Random01, relation: Relation, value: Any, wording: Wording, *, wrong: bool = False) -> Clause:
    """Words a fact as a verb phrase of a reply; the value of a wrong one is marked."""
    repeats = bool(wording.phrases) and random() < wording.phrases
    before, after = pick(random, relation.knowledge_templates if repeats else relation.reply_templates)
    text = reply_wording(random, value, wording.values)
    whole = f"{before}{text}{after}"
    return Clause(whole, len(before), len(before) + len(text), swap_kind(relation)) if wrong else Clause(whole)


def contrast(random: Random01, relation: Relation, truth: Any, other: Any, wording: Wording, *, wrong: bool) -> Clause:
    """Words a fact as `is A, not B` or `is not B`.

    A faithful and a hallucinated reply then have the same words in another order, so words alone do not show the label.
    """
    claimed, denied = (other, truth) if wrong else (truth, other)
    before, _ = pick(random, relation.reply_templates)
    denial = reply_wording(random, denied, wording.values)
    if random() < 0.5 and before.startswith(("is ", "was ")):
        verb, _, rest = before.partition(" ")
        text = f"{verb} not {rest}{denial}"
        return Clause(text, 0, len(text), CONTRADICTION) if wrong else Clause(text)
    text = f"{before}{reply_wording(random, claimed, wording.values)}, not {denial}"
    return Clause(text, len(before), len(text), CONTRADICTION) if wrong else Clause(text)


def judgement(kind: str, marked: Sequence[str], truth: str) -> str:
    """Writes a judge's answer about a reply: yes or no, the unsupported parts, and why.

    Args:
        kind: A key of `RATES`, or faithful, uncooperative, generic.
        marked: The unsupported parts.
        truth: What the knowledge states in their place; for a faithful reply, the facts that it took from there.
    """
    if kind == "generic":
        return "No, the response is generic: it says nothing that the knowledge could support or deny."
    if kind in ("faithful", "uncooperative"):
        return f"No, the response is faithful: the knowledge says that it {truth}."
    part = " and ".join(f'"{text}"' for text in marked)
    if kind == SUBJECTIVE:
        return f"Yes, {part} is a personal remark that the knowledge cannot support."
    if kind == ADDITION:
        verb = "is" if len(marked) == 1 else "are"
        return f"Yes, {part} {verb} not in the knowledge, which only says that it {truth}."
    verb = "contradicts" if len(marked) == 1 else "contradict"
    return f"Yes, {part} {verb} the knowledge, which says that it {truth}."


@cache
def _contrastable(domain: Domain) -> tuple[bool, ...]:
    """Returns for each relation whether `not` may precede its values: those of closed sets that end reply clauses."""
    return tuple(
        not isinstance(relation.values, Slot) and all(t.before and not t.after for t in relation.reply_templates)
        for relation in domain.relations
    )


def true_clause(random: Random01, state: DialogueState, fact: Fact, wording: Wording) -> Clause:
    """Writes a clause that states the fact."""
    relation = state.domain.relations[fact.relation]
    if random() < CONTRAST_RATE and _contrastable(state.domain)[fact.relation]:
        other = draw_value(random, relation.values, state.split, unlike=fact.value)
        return contrast(random, relation, fact.value, other, wording, wrong=False)
    return reply_clause(random, relation, fact.value, wording)


def wrong_clause(
    random: Random01, state: DialogueState, fact: Fact, facts: list[Fact], wording: Wording
) -> tuple[Clause, str]:
    """Writes a clause that contradicts the fact, with the wrong part marked, and returns it with its severity."""
    relation = state.domain.relations[fact.relation]
    # Subtle: the knowledge gives this very value to another relation. Evident: the knowledge does not mention it.
    relations = state.domain.confusable[fact.relation]
    confusable = [f.value for f in facts if f.relation in relations and f.value != fact.value]
    if confusable and random() < 0.25:
        other = pick(random, confusable)
    else:
        for _ in range(20):
            other = draw_value(random, relation.values, state.split, unlike=fact.value)
            if other not in confusable:
                break
    severity = "subtle" if other in confusable else "evident"
    if random() < CONTRAST_RATE and _contrastable(state.domain)[fact.relation]:
        return contrast(random, relation, fact.value, other, wording, wrong=True), "subtle"
    clause = reply_clause(random, relation, other, wording, wrong=True)
    if not relation.reply_templates[0].before and not relation.reply_templates[0].after:  # the value is all of it
        clause = Clause(clause.text, 0, len(clause.text), clause.kind)
    return clause, severity


def added_clause(random: Random01, state: DialogueState, relation: int, wording: Wording) -> Clause:
    """Writes a clause about a relation that the knowledge does not mention; all of it is marked."""
    described = state.domain.relations[relation]
    text = reply_clause(random, described, draw_value(random, described.values, state.split), wording).text
    return Clause(text, 0, len(text), ADDITION)
