"""Domains of invented topics: the relations of each, the values that these can have, and how values are worded.

The wordings are in `domains.txt` and `values.txt`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data_modules.embedded.phrasing import Random01, in_words, person, pick, word
from data_modules.reading.formats import read_sections

YEAR, COUNT, PERSON, PLACE = "year", "count", "person", "place"


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
