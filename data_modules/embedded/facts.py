"""What can be said of a thing: domains, the relations of each, and the facts drawn for one invented thing."""

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
    """A verb phrase around its value; value sets of whole verb phrases leave both sides empty."""

    before: str
    after: str


class Relation(NamedTuple):
    """One relation type.

    Args:
        name: Its name within the domain.
        question: What a seeker asks for it.
        topic: The same as an indirect question.
        know: Verb phrases of the knowledge.
        say: Verb phrases of replies.
        values: A closed set, or a slot. Relations of one domain that share their values can be mixed up.
    """

    name: str
    question: str
    topic: str
    know: tuple[Template, ...]
    say: tuple[Template, ...]
    values: tuple[Value, ...] | Slot


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """A kind of thing: how it is called and what is known of it.

    Args:
        name: For example `bridge`; replies say "the bridge".
        full: The name in running text, for example "the {} Bridge".
        intro: What it is, with its article.
    """

    name: str
    full: str
    intro: str
    relations: tuple[Relation, ...]
    twins: tuple[tuple[int, ...], ...]  # for each relation the others with the same values

    @classmethod
    def parse(cls, name: str, full: str, intro: str, lines: str) -> "Domain":
        """The domain from its relations as text.

        A relation is a line `name: values: question: indirect question`, where values names a set of `values`, a set
        of `polar`, or a slot (`year`, `person`, `place`, `count LOW HIGH`). But for polar ones a second line follows,
        `verb phrase {} | another {} > verb phrase of a reply {} | another {}`.
        """
        relations: list[Relation] = []
        rows = iter(lines.strip().splitlines())
        for row in rows:
            label, kind, question, topic = row.split(": ")
            know, say = ("{}", "{}") if kind.startswith("polar.") else next(rows).split(">")
            relations.append(Relation(label, question, topic, _templates(know), _templates(say), _values(kind)))
        twins = tuple(
            tuple(j for j, other in enumerate(relations) if j != i and _alike(one.values, other.values))
            for i, one in enumerate(relations)
        )
        return cls(name, full, intro, tuple(relations), twins)


def draw(random: Random01, options: tuple[Value, ...] | Slot, split: str, unlike: object = None) -> object:
    """A value of the set or slot that is clearly not `unlike`."""
    while True:
        value = _draw(random, options, split)
        if unlike is None or not _close(value, unlike):
            return value


def know_value(random: Random01, value: object) -> str:
    """The value in the knowledge's words."""
    if isinstance(value, Value):
        return pick(random, value.know)
    return f"{value:,}" if type(value) is int else str(value)


def say_value(random: Random01, value: object, plain: float) -> str:
    """The value in a reply's words, or, with probability `plain`, in the knowledge's own."""
    if isinstance(value, Value):
        return pick(random, value.know if random() < plain else value.say)
    if type(value) is int:
        return _say_count(random, value, plain)
    if isinstance(value, Year) and random() >= plain:
        return f"the {value[:3]}0s"
    return str(value)


class Year(str):
    """A year, told apart from a count."""

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


def _alike(one: object, other: object) -> bool:
    return one is other or (isinstance(one, Slot) and isinstance(other, Slot) and one.kind == other.kind)


def _draw(random: Random01, options: tuple[Value, ...] | Slot, split: str) -> object:
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


def _close(value: object, other: object) -> bool:
    if isinstance(value, Year) and isinstance(other, Year):
        return abs(int(value) - int(other)) < 15
    if type(value) is int and type(other) is int:
        return 0.7 < value / max(other, 1) < 1.4
    return value == other


def _say_count(random: Random01, value: int, plain: float) -> str:
    if random() < plain:
        return f"{value:,}"
    if value < 100 or (value < 10_000 and value % 100 == 0):
        return in_words(value)
    rounded = round(value, -2) if value >= 1000 else round(value, -1)
    return f"about {rounded:,}" if rounded != value else f"{value:,}"
