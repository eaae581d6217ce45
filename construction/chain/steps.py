"""The steps of a chain, and how portions of rows go through one, each row as soon as its turn has come."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

from construction.chain.chain_rows import KEY, TRIES, Row, hole, is_hole
from faithkit.errors import UserError, shorten

Item = TypeVar("Item")
PORTION = 1024  # rows at a time


class Work(Protocol):
    """Makes a step's rows."""

    def open(self) -> str:
        """Gets ready; gives the identity of what is asked, or nothing."""
        ...

    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yields a row or a hole for each row, in any order, under its key."""
        ...

    def close(self) -> str:
        """Lets go of what `open` took; says what was used, or nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Each:
    """Makes each row by a function that asks nobody."""

    function: Callable[[Row], Row]

    def open(self) -> str:
        """Needs nothing."""
        return ""

    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Calls the function."""
        return (self.function({key: value for key, value in row.items() if key != TRIES}) for row in rows)

    def close(self) -> str:
        """Has nothing to let go of."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The first step of a chain: rows from files.

    Args:
        read: Yields the rows, each time the same ones in the same order.
        settings: What they depend on: options, and the hashes of the files.
        version: Of the step's code: raised with each change of what it makes.
    """

    name: str
    read: Callable[[], Iterable[Row]]
    settings: Mapping[str, Any]
    version: int = 1
    branch: str = ""
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step that makes a row of each row before it.

    Args:
        work: Gets portions of rows without holes.
        settings: What its rows depend on beside the rows before: its options, its prompt's text, its model.
        after: The steps whose rows it reads; several are joined by key.
        branch: Names its rows where a later step reads several branches.
        portion: Rows at a time.
        version: Of the step's code: raised with each change of what it makes.
    """

    name: str
    work: Work
    settings: Mapping[str, Any]
    after: tuple[str, ...]
    branch: str = ""
    portion: int = PORTION
    version: int = 1


AnyStep = Source | Step


def batched(items: Iterable[Item], size: int) -> Iterator[tuple[Item, ...]]:
    """Gives out portions (itertools.batched is of Python 3.12)."""
    rest = iter(items)
    while portion := tuple(islice(rest, size)):
        yield portion


def in_order(
    name: str, work: Work, portion: Sequence[Row], advance: Callable[[int], object] = lambda number: None
) -> Iterator[Row]:
    """Yields the rows of a portion in its order, each as soon as it and those before it are there; holes pass through.

    Raises:
        UserError: Two rows have one key.
    """
    asked = {row[KEY]: row for row in portion if not is_hole(row)}
    if len({row[KEY] for row in portion}) < len(portion):
        twice = next(key for key, number in Counter(row[KEY] for row in portion).items() if number > 1)
        raise UserError(f"two rows have the key {shorten(twice)}", place=name, hint="make the ids of the data unique")
    made: dict[str, Row] = {}
    place = 0
    advance(len(portion) - len(asked))
    for row in work.run(list(asked.values())) if asked else ():
        assert row[KEY] in asked and row[KEY] not in made, f"{name} made a row of its own: {row[KEY]}"
        made[row[KEY]] = row
        advance(1)
        while place < len(portion) and (is_hole(portion[place]) or portion[place][KEY] in made):
            yield made.pop(portion[place][KEY], portion[place])
            place += 1
    for before in portion[place:]:
        lost = hole(before[KEY], name, "no row came back")
        yield before if is_hole(before) else made.pop(before[KEY], lost)
