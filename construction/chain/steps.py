"""Rows and steps of a chain, and how a chunk of rows passes through a step in its order.

A row is a JSON object with a key. A row that fails is replaced by a failed row, which later steps pass on unchanged.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

from faithkit.errors import UserError, shorten
from faithkit.records import Prediction

Item = TypeVar("Item")
Row = dict[str, Any]
KEY, FAILURE = "key", "failure"
TRIES = "tries"  # of a row that is made again: the number of earlier attempts
NO_VERDICT = "no verdict"
AT = "@"  # precedes a branch's name in the keys of rows that several branches give
CHUNK_SIZE = 1024


def failed_row(key: str, step: str, why: str, detail: str = "", tries: int = 1) -> Row:
    """Makes the row that replaces one that failed.

    Args:
        step: The step in which it failed.
        why: The kind of failure, by which failed rows are counted.
        detail: What is particular to this one.
        tries: How often it was tried.
    """
    return {KEY: key, FAILURE: {"step": step, "why": why, **({"detail": detail} if detail else {}), TRIES: tries}}


def row_without_verdict(row: Row, step: str, prediction: Prediction) -> Row:
    """Makes the failed row of a row on which a detector gave no verdict."""
    return failed_row(row[KEY], step, NO_VERDICT, prediction.text, row.get(TRIES, 0) + 1)


def is_failed(row: Mapping[str, Any]) -> bool:
    """Checks whether a row is a failed row."""
    return FAILURE in row


def num_tries(row: Mapping[str, Any]) -> int:
    """Counts how often a failed row was tried."""
    return int(row[FAILURE].get(TRIES, 1))


def failure_name(row: Mapping[str, Any]) -> str:
    """Names the step and the kind of a failure."""
    return f"{row[FAILURE]['step']}: {row[FAILURE]['why']}"


def usable_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Leaves out failed rows."""
    return (row for row in rows if not is_failed(row))


class Work(Protocol):
    """Makes the rows of a step."""

    def open(self) -> str:
        """Loads what is needed; returns the identity of the model, or an empty text."""
        ...

    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yields a row or a failed row for each row, in any order, under its key."""
        ...

    def close(self) -> str:
        """Frees what `open` loaded; returns what was used, or an empty text."""
        ...


@dataclass(frozen=True, slots=True)
class Each:
    """Makes each row by a function."""

    function: Callable[[Row], Row]

    def open(self) -> str:
        """Loads nothing."""
        return ""

    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Calls the function."""
        return (self.function({key: value for key, value in row.items() if key != TRIES}) for row in rows)

    def close(self) -> str:
        """Frees nothing."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The first step of a chain: rows from files.

    Args:
        read: Yields the rows, the same ones in the same order at each call.
        settings: What they depend on: options, and the hashes of the files.
        version: Of the step's code; raise it with each change of what it makes.
    """

    name: str
    read: Callable[[], Iterable[Row]]
    settings: Mapping[str, Any]
    version: int = 1
    branch: str = ""
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step that makes one row from each row of an earlier step.

    Args:
        work: Gets chunks of rows without the failed ones.
        settings: What its rows depend on besides the rows before: options, prompt, model.
        after: The steps that it reads; several are joined by key.
        branch: Names its rows where a later step reads several branches.
        version: Of the step's code; raise it with each change of what it makes.
    """

    name: str
    work: Work
    settings: Mapping[str, Any]
    after: tuple[str, ...]
    branch: str = ""
    chunk_size: int = CHUNK_SIZE
    version: int = 1


AnyStep = Source | Step


def join_branches(branches: Mapping[str, Iterable[Row]]) -> Iterator[Row]:
    """Yields the rows of several branches together: those of one key follow each other, as `key@branch`."""
    for rows in zip(*branches.values(), strict=True):
        assert len({row[KEY] for row in rows}) == 1, "branches have the same keys in the same order"
        for branch, row in zip(branches, rows, strict=True):
            yield {**row, KEY: f"{row[KEY]}{AT}{branch}"}


def batched(items: Iterable[Item], size: int) -> Iterator[tuple[Item, ...]]:
    """Yields chunks (itertools.batched needs Python 3.12)."""
    rest = iter(items)
    while chunk := tuple(islice(rest, size)):
        yield chunk


def run_in_order(
    name: str, work: Work, chunk: Sequence[Row], advance: Callable[[int], object] = lambda number: None
) -> Iterator[Row]:
    """Yields the rows that a step makes, each as soon as all rows before it are ready; failed rows pass through.

    Args:
        advance: Receives the number of rows that were made.

    Raises:
        UserError: Two rows have one key.
    """
    requested = {row[KEY]: row for row in usable_rows(chunk)}
    if len({row[KEY] for row in chunk}) < len(chunk):
        twice = next(key for key, number in Counter(row[KEY] for row in chunk).items() if number > 1)
        raise UserError(f"two rows have the key {shorten(twice)}", place=name, hint="make the ids of the data unique")
    made: dict[str, Row] = {}
    position = 0
    advance(len(chunk) - len(requested))
    for row in work.run(list(requested.values())) if requested else ():
        assert row[KEY] in requested and row[KEY] not in made, f"{name} made an unexpected row: {row[KEY]}"
        made[row[KEY]] = row
        advance(1)
        while position < len(chunk) and (is_failed(chunk[position]) or chunk[position][KEY] in made):
            yield made.pop(chunk[position][KEY], chunk[position])
            position += 1
    for row in chunk[position:]:
        yield row if is_failed(row) else made.pop(row[KEY], failed_row(row[KEY], name, "no row came back"))
