"""What can be said of a thing: domains, the relations of each, and the facts drawn for one invented thing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    def build(cls, name: str, full: str, intro: str, relations: Sequence[Relation]) -> "Domain":
        """The domain, with its twins found."""
        twins = tuple(
            tuple(j for j, other in enumerate(relations) if j != i and _alike(one.values, other.values))
            for i, one in enumerate(relations)
        )
        return cls(name, full, intro, tuple(relations), twins)


def relation(name: str, question: str, topic: str, know: str, say: str, values: tuple[Value, ...] | Slot) -> Relation:
    """A relation from templates written `phrase {} | phrase {}`."""
    return Relation(name, question, topic, _templates(know), _templates(say), values)


def polar(name: str, question: str, topic: str, values: tuple[Value, ...]) -> Relation:
    """A relation whose values are whole verb phrases."""
    return Relation(name, question, topic, (Template("", ""),), (Template("", ""),), values)


def draw(random: Random01, values: tuple[Value, ...] | Slot, split: str, unlike: object = None) -> object:
    """A value of the set or slot that is clearly not `unlike`."""
    while True:
        value = _draw(random, values, split)
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


def _alike(one: object, other: object) -> bool:
    return one is other or (isinstance(one, Slot) and isinstance(other, Slot) and one.kind == other.kind)


def _draw(random: Random01, values: tuple[Value, ...] | Slot, split: str) -> object:
    if not isinstance(values, Slot):
        return pick(random, values)
    if values.kind == PERSON:
        return person(random, split)
    if values.kind == PLACE:
        return word(random, split)
    if values.kind == YEAR:
        return Year(1780 + int(random() * 230))
    count = values.low + int(random() * (values.high - values.low))
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
