"""Sequences of different lengths in two flat arrays: the form in which tokens are kept from tokenizer to batch.

Shapes below: R rows, V values in all, W the width of the longest row.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LONG = 48  # values of a row on average: from here on copying row by row is faster than value by value


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of different lengths; row i is `values[offsets[i] : offsets[i + 1]]`.

    Args:
        values: All rows, one after the other. Shape (V,).
        offsets: The beginning of each row, and the end of the last one. Shape (R + 1,).
    """

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def from_lists(cls, rows: Iterable[Sequence[int]]) -> "Ragged":
        """Copies lists of numbers."""
        rows = list(rows)
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        values = np.fromiter((value for row in rows for value in row), np.int32, int(lengths.sum()))
        return cls(values, offsets_of(lengths))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each row. Shape (R,)."""
        return self.offsets[1:] - self.offsets[:-1]  # a third of the time of np.diff

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, index: int) -> NDArray[np.int32]:
        """Returns one row, as a view."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def take(self, indices: NDArray[np.int64]) -> "Ragged":
        """Copies the rows at `indices`, in that order."""
        begins = self.offsets[indices]
        return self._copy(begins, self.offsets[indices + 1] - begins)

    def cut(self, longest: NDArray[np.int64]) -> "Ragged":
        """Cuts each row to its `longest`; the same rows where nothing is too long. Shape (R,)."""
        lengths = np.minimum(self.lengths, longest)
        return self if int(lengths.sum()) == len(self.values) else self._copy(self.offsets[:-1], lengths)

    def slice_rows(self, indices: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> "Ragged":
        """Copies a part of each row at `indices`.

        Args:
            indices: Rows, in the order of the result. Shape (N,), like the others.
            starts: The part's beginning, counted from that of its row.
            lengths: The part's length.
        """
        return self._copy(self.offsets[indices] + starts, lengths)

    def _copy(self, begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> "Ragged":
        offsets = offsets_of(lengths)
        if len(lengths) and offsets[-1] >= LONG * len(lengths):
            bounds = zip(begins.tolist(), (begins + lengths).tolist(), strict=True)
            return Ragged(np.concatenate([self.values[begin:end] for begin, end in bounds]), offsets)
        places = (begins - offsets[:-1]).repeat(lengths) + np.arange(offsets[-1])  # a place for each value copied
        return Ragged(self.values[places], offsets)


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the beginnings of rows of these lengths, and the end of the last: (R,) to (R + 1,)."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def steps_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts 0, 1, 2, ... within each row: lengths 2 and 3 give 0 1 0 1 2. Shape (R,) to (V,)."""
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)


def stack_rows(parts: Sequence[Ragged]) -> Ragged:
    """Puts the rows of all parts below each other: R is the sum of the parts' row counts."""
    return Ragged(np.concatenate([p.values for p in parts]), offsets_of(np.concatenate([p.lengths for p in parts])))


def join_rows(parts: Sequence[Ragged]) -> Ragged:
    """Joins the rows of all parts side by side: row i of the result is row i of every part, in their order."""
    lengths = np.sum([part.lengths for part in parts], axis=0)  # (R,)
    offsets = offsets_of(lengths)
    values = np.empty(int(offsets[-1]), np.int32)
    begin = offsets[:-1].copy()  # (R,): in each row of the result, the place that the next part goes to
    for part in parts:
        # A whole row moves by one distance: from its place in the part to its place in the result.
        distance = np.repeat(begin - part.offsets[:-1], part.lengths)  # (V of the part,)
        values[distance + np.arange(len(part.values))] = part.values
        begin += part.lengths
    return Ragged(values, offsets)


def constant_rows(row: Sequence[int], count: int) -> Ragged:
    """Repeats a short row `count` times, for instance a special token in front of every sequence."""
    values = np.tile(np.asarray(row, np.int32), count)
    return Ragged(values, np.arange(count + 1, dtype=np.int64) * len(row))


def pad_rows(rows: Ragged, fill: int) -> NDArray[np.int64]:
    """Pads the rows at the right with `fill`, to a rectangle of shape (R, W)."""
    lengths = rows.lengths
    padded = np.full((len(rows), int(lengths.max(initial=0))), fill, np.int64)
    inside = np.arange(padded.shape[1])[None, :] < lengths[:, None]  # (R, W)
    padded[inside] = rows.values  # a boolean mask is filled row by row, which is the order of `values`
    return padded
