"""Counts n-grams of many pairs of texts at once: those of each side, and those that both share.

Words become numbers and pairs become rows of flat arrays, so that counting is sorting. BLEU, ROUGE and token F1 all
stand on the same clipped count: of each n-gram, the smaller of its numbers on the two sides.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from faithkit.statistics.intervals import Values

Texts = Sequence[Sequence[str]]  # each a list of tokens
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """Numbers of n-grams of one order [N]: in the first text of each pair, in the second, and in both."""

    first: Values
    second: Values
    both: Values

    @property
    def f1(self) -> Values:
        """Computes the harmonic mean of both shares; 0 where nothing is shared."""
        total = self.first + self.second
        return np.divide(2 * self.both, total, out=np.zeros_like(total), where=self.both > 0)


@dataclass(frozen=True, slots=True, eq=False)
class Grams:
    """The n-grams of some texts: `row` [M] is the text, `gram` [M] a number for the n-gram, below `kinds`."""

    row: Integers
    gram: Integers
    kinds: int


def grams(texts: Texts, max_order: int) -> Iterator[Grams]:
    """Numbers the n-grams of order 1, 2, ..., `max_order`; equal ones have equal numbers in all texts."""
    number: defaultdict[str, int] = defaultdict(count().__next__)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    ids = np.fromiter(map(number.__getitem__, chain.from_iterable(texts)), np.int64, int(lengths.sum()))
    row = np.repeat(np.arange(len(texts)), lengths)
    yield Grams(row, ids, len(number))
    current = ids.copy()  # the number of the n-gram that begins at each place, if one does
    for order in range(2, max_order + 1):
        last = row[order - 1 :]
        starts = np.flatnonzero(row[: len(last)] == last)  # it does not reach into the next text
        pairs = current[starts] * len(number) + ids[starts + order - 1]
        distinct, numbers = np.unique(pairs, return_inverse=True)
        current[starts] = numbers
        yield Grams(row[starts], numbers, len(distinct))


def shared_grams(first: Texts, second: Texts, max_order: int = 1) -> list[Shared]:
    """Counts, for each order up to `max_order`, the n-grams of every pair."""
    assert len(first) == len(second), "texts come in pairs"
    size = len(first)
    return [_share(found, size) for found in grams([*first, *second], max_order)]


def _share(found: Grams, size: int) -> Shared:
    key = found.row % max(1, size) * found.kinds + found.gram
    is_second = found.row >= size
    keys, counts = np.unique(key[~is_second], return_counts=True)
    other_keys, other_counts = np.unique(key[is_second], return_counts=True)
    common, mine, theirs = np.intersect1d(keys, other_keys, assume_unique=True, return_indices=True)
    clipped = np.minimum(counts[mine], other_counts[theirs])
    totals = np.bincount(found.row, minlength=2 * size).astype(np.float64)
    both = np.bincount(common // max(1, found.kinds), weights=clipped, minlength=size).astype(np.float64)
    return Shared(first=totals[:size], second=totals[size:], both=both)
