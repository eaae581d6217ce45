"""Sequences of different lengths in two flat arrays: what tokens are kept in, from the tokenizer to the batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LONG = 24  # values of a row on average: from here on copying row by row is faster than value by value


@dataclass(frozen=True, slots=True)
class Ragged:
    """Row i is `values[offsets[i] : offsets[i + 1]]`.

    Args:
        values: All rows, one behind the other.
        offsets: Where each row begins, and behind the last row the end; one more than there are rows.
    """

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def from_lists(cls, rows: Iterable[Sequence[int]]) -> "Ragged":
        rows = list(rows)
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        values = np.fromiter((value for row in rows for value in row), np.int32, int(lengths.sum()))
        return cls(values, offsets_of(lengths))

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, index: int) -> NDArray[np.int32]:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def take(self, indices: NDArray[np.int64]) -> "Ragged":
        """The named rows, in that order, as arrays of their own."""
        begins, ends = self.offsets[indices], self.offsets[indices + 1]
        offsets = offsets_of(ends - begins)
        if offsets[-1] < LONG * len(indices) or not len(indices):
            return self.slice_rows(indices, np.zeros(len(indices), np.int64), ends - begins)
        return Ragged(np.concatenate(self.pieces(begins, ends)), offsets)

    def pieces(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> list[NDArray[np.int32]]:
        """Stretches of `values`, as views."""
        return [self.values[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]

    def slice_rows(self, indices: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> "Ragged":
        """From each named row the `lengths` values that begin at `starts`."""
        offsets = offsets_of(lengths)
        # For every value of the result, where it stands in `values`: the row's first place plus the step within it.
        places = np.repeat(self.offsets[indices] + starts, lengths) + steps_of(lengths)
        return Ragged(self.values[places], offsets)


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where rows of these lengths begin when they stand one behind the other."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def steps_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts 0, 1, 2, ... within each of some stretches that stand one behind the other."""
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)


def stack_rows(parts: Sequence[Ragged]) -> Ragged:
    """The rows of all parts, one part behind the other."""
    return Ragged(np.concatenate([p.values for p in parts]), offsets_of(np.concatenate([p.lengths for p in parts])))


def join_rows(parts: Sequence[Ragged]) -> Ragged:
    """Row i of the result is row i of every part, one behind the other."""
    lengths = np.sum([part.lengths for part in parts], axis=0)
    offsets = offsets_of(lengths)
    values = np.empty(int(offsets[-1]), np.int32)
    begin = offsets[:-1].copy()
    for part in parts:
        places = np.repeat(begin - part.offsets[:-1], part.lengths) + np.arange(len(part.values))
        values[places] = part.values
        begin += part.lengths
    return Ragged(values, offsets)


def constant_rows(row: Sequence[int], count: int) -> Ragged:
    """The same short row, `count` times: a special token in front of every sequence."""
    values = np.tile(np.asarray(row, np.int32), count)
    return Ragged(values, np.arange(count + 1, dtype=np.int64) * len(row))


def pad_rows(rows: Ragged, fill: int) -> NDArray[np.int64]:
    """The rows as one rectangle, as wide as the longest, filled up at the right."""
    lengths = rows.lengths
    padded = np.full((len(rows), int(lengths.max(initial=0))), fill, np.int64)
    padded[np.arange(padded.shape[1])[None, :] < lengths[:, None]] = rows.values
    return padded
