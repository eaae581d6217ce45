"""Domains of invented topics: the relations of each, the values that these can have, and how values are worded."""

from dataclasses import dataclass
from typing import NamedTuple

from data_modules.embedded import polar, values
from data_modules.embedded.lexicon import Random01, in_words, person, pick, word
from data_modules.embedded.values import Value

YEAR, COUNT, PERSON, PLACE = "year", "count", "person", "place"


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
        name: Its name within the domain.
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

    @classmethod
    def parse(cls, name: str, full_name: str, intro: str, lines: str) -> "Domain":
        """Parses a domain's relations.

        A relation is a line `name: values: question: indirect question`, where values names a set of `values`, a set
        of `polar`, or a slot (`year`, `person`, `place`, `count LOW HIGH`). A second line follows, except for polar
        ones: `verb phrase {} | another {} > verb phrase of a reply {} | another {}`.
        """
        relations: list[Relation] = []
        rows = iter(lines.strip().splitlines())
        for row in rows:
            label, kind, question, topic = row.split(": ")
            knowledge, reply = ("{}", "{}") if kind.startswith("polar.") else next(rows).split(">")
            templates = _templates(knowledge), _templates(reply)
            relations.append(Relation(label, question, topic, *templates, _values(kind)))
        confusable = tuple(
            tuple(j for j, other in enumerate(relations) if j != i and _share_values(one.values, other.values))
            for i, one in enumerate(relations)
        )
        return cls(name, full_name, intro, tuple(relations), confusable)


def draw_value(random: Random01, options: tuple[Value, ...] | Slot, split: str, unlike: object = None) -> object:
    """Draws a value of the set or slot that is clearly different from `unlike`."""
    while True:
        value = _draw_any(random, options, split)
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
        return _count_wording(random, value, verbatim_rate)
    if isinstance(value, Year) and random() >= verbatim_rate:
        return f"the {value[:3]}0s"
    return str(value)


class Year(str):
    """A year: of a type of its own, so that it is not taken for a count."""

    __slots__ = ()


def _templates(text: str) -> tuple[Template, ...]:
    parts = (" ".join(part.split()).split("{}") for part in text.split("|"))
    return tuple(Template(before, after) for before, after in parts)


def _values(name: str) -> "tuple[Value, ...] | Slot":
    kind, *bounds = name.split()
    if kind in (YEAR, COUNT, PERSON, PLACE):
        return Slot(kind, *map(int, bounds))
    module = polar if kind.startswith("polar.") else values
    found: tuple[Value, ...] = getattr(module, kind.removeprefix("polar.").upper())
    return found


def _share_values(one: object, other: object) -> bool:
    return one is other or (isinstance(one, Slot) and isinstance(other, Slot) and one.kind == other.kind)


def _draw_any(random: Random01, options: tuple[Value, ...] | Slot, split: str) -> object:
    if not isinstance(options, Slot):
        return pick(random, options)
    if options.kind == PERSON:
        return person(random, split)
    if options.kind == PLACE:
        return word(random, split)
    if options.kind == YEAR:
        return Year(1780 + int(random() * 230))
    count = options.low + int(random() * (options.high - options.low))
    return count if count < 100 else count - count % (10 if count < 1000 else 50)


def _is_close(value: object, other: object) -> bool:
    if isinstance(value, Year) and isinstance(other, Year):
        return abs(int(value) - int(other)) < 15
    if type(value) is int and type(other) is int:
        return 0.7 < value / max(other, 1) < 1.4
    return value == other


def _count_wording(random: Random01, value: int, verbatim_rate: float) -> str:
    if random() < verbatim_rate:
        return f"{value:,}"
    if value < 100 or (value < 10_000 and value % 100 == 0):
        return in_words(value)
    rounded = round(value, -2) if value >= 1000 else round(value, -1)
    return f"about {rounded:,}" if rounded != value else f"{value:,}"
