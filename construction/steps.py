"""Rows and steps of a chain, and how a chunk of rows passes through a step in its order.

A row is a JSON object with a key. A row that fails is replaced by a failed row, which later steps pass on unchanged.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from data_modules.splits import divide_groups
from faithkit.errors import UserError, shorten
from faithkit.provenance.row_keys import group_hash

Item = TypeVar("Item")
Row = dict[str, Any]
KEY, FAILURE = "key", "failure"
TRIES = "tries"  # of a row that is made again: the number of earlier attempts
NO_VERDICT = "no verdict"
AT = "@"  # precedes a branch's name in the keys of rows that several branches give
CHUNK_SIZE = 1024


class RowFailed(Exception):
    """Raised by what reads a model's reply or verdict: the row fails.

    Args:
        why: The kind of failure, by which failed rows are counted.
        detail: What is particular to this one.
    """

    def __init__(self, why: str, detail: str = ""):
        super().__init__(why)
        self.why, self.detail = why, detail


def failed_row(key: str, why: str, detail: str = "") -> Row:
    """Makes the row that replaces one that failed; the chain adds the step and how often the row was tried."""
    return {KEY: key, FAILURE: {"why": why, **({"detail": detail} if detail else {})}}


def read_row(row: Row, read: Callable[..., Row], *given: Any) -> Row:
    """Reads a row, or makes a failed row.

    Args:
        given: What is read besides the row.
    """
    try:
        return read(row, *given)
    except RowFailed as failure:
        return failed_row(row[KEY], failure.why, failure.detail)


def is_failed(row: Mapping[str, Any]) -> bool:
    """Checks whether a row is a failed row."""
    return FAILURE in row


def failure_names(row: Mapping[str, Any]) -> list[str]:
    """Names the step and the kind of a row's failure; none if it did not fail."""
    return [f"{row[FAILURE]['step']}: {row[FAILURE]['why']}"] if is_failed(row) else []


def usable_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Leaves out failed rows."""
    return (row for row in rows if not is_failed(row))


class Work(ABC):
    """Makes the rows of a step."""

    @property
    def chunk_size(self) -> int:
        """The number of rows that it gets at a time."""
        return CHUNK_SIZE

    def settings(self) -> dict[str, Any]:
        """Collects what its rows depend on besides the rows before."""
        return {}

    def open(self) -> str:
        """Loads what is needed; returns the identity of the model, or an empty text."""
        return ""

    @abstractmethod
    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yields a row or a failed row for each row, in any order, under its key."""

    def close(self) -> str:
        """Frees what `open` loaded; returns what was used, or an empty text."""
        return ""


@dataclass(frozen=True)
class Each(Work):
    """Makes each row by a function."""

    function: Callable[[Row], Row]

    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Calls the function."""
        return map(self.function, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a chain: it makes one row from each row of earlier steps, or, as the first one, reads rows of files.

    Args:
        read: For the first step: yields the rows, the same ones in the same order at each call.
        work: Gets chunks of rows without the failed ones; without it rows stay as they are.
        after: The steps that it reads; several are joined by key.
        branch: Names its rows where a later step reads several branches.
        settings: What its rows depend on besides the settings of the work: options, and the hashes of files.
    """

    name: str
    read: Callable[[], Iterable[Row]] | None = None
    work: Work = Each(lambda row: row)
    after: tuple[str, ...] = ()
    branch: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


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
        made[row[KEY]] = _finished(row, name, requested[row[KEY]])
        advance(1)
        while position < len(chunk) and (is_failed(chunk[position]) or chunk[position][KEY] in made):
            yield made.pop(chunk[position][KEY], chunk[position])
            position += 1
    for row in chunk[position:]:
        missing = _finished(failed_row(row[KEY], "no row came back"), name, row)
        yield row if is_failed(row) else made.pop(row[KEY], missing)


def _finished(row: Row, step: str, before: Row) -> Row:
    """Removes from a new row what is of its making alone; adds the step and the tries to one that failed."""
    if is_failed(row):
        return {**row, FAILURE: {"step": step, **row[FAILURE], TRIES: before.get(TRIES, 0) + 1}}
    return {name: value for name, value in row.items() if name != TRIES}


@dataclass(frozen=True, slots=True)
class Division:
    """Divides groups into splits; the rest is `train`. A group's split depends on its name and the seed alone.

    Args:
        fractions: Shares of the groups by split.
    """

    fractions: Mapping[str, float]
    seed: int = 0

    def split_of(self, group: str) -> str:
        """Gives the split of a group."""
        # Salted, because training divides groups by their plain hashes: the same ones would leave no validation set.
        salted = group_hash(f"construction:{group}")
        found = divide_groups(np.array([salted], np.uint64), self.fractions, self.seed)
        return next(name for name, rows in found.items() if len(rows))
