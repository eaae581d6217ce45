"""Proportions from counts of groups by kind (rows, hallucinated rows), which add up over shards.

There are few kinds however many rows there are, so no row is held.

>>> count_group_kinds(["a", "a", "b", "c"], [1, 0, 1, 1])
[[1, 1, 2], [2, 1, 1]]
>>> proportion_from_counts([[1, 1, 2], [2, 1, 1]], num_resamples=100).value
0.75
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from faithkit.statistics.metric import PROPORTION, Metric
from faithkit.statistics.spread import CHUNK, MAX_GROUPS, Spread, compute_interval, measure_spreads


def proportion_from_counts(counts: Sequence[Sequence[int]], *, num_resamples: int, seed: int = 0) -> Metric | None:
    """Computes the hallucinated share with its interval, as `bootstrap` does from rows; None without rows.

    Args:
        counts: Rows, hallucinated rows, and the number of such groups.
    """
    table = np.array([kind for kind in counts if kind[0]], np.int64).reshape(-1, 3)
    kinds, sizes = table[:, :2], table[:, 2]
    num_groups, (num_rows, num_positive) = int(sizes.sum()), sizes @ kinds
    if not num_rows:
        return None
    value = float(num_positive / num_rows)
    if num_groups == 1:
        return Metric(value=value, n=int(num_rows))
    if num_groups <= MAX_GROUPS:
        rows, positive = np.repeat(kinds, sizes, axis=0).T
        spread = measure_spreads(lambda weights: {"share": (weights @ positive) / (weights @ rows)}, num_groups)[
            "share"
        ]
    else:
        generator, samples = np.random.default_rng(seed), []
        chunk_size = max(1, CHUNK // len(kinds))
        for start in range(0, num_resamples, chunk_size):
            drawn = generator.multinomial(num_groups, sizes / num_groups, min(chunk_size, num_resamples - start))
            totals = drawn @ kinds  # [resamples, 2]: rows, hallucinated rows
            samples.append(totals[:, 1] / totals[:, 0])
        spread = Spread.uniform(float(np.concatenate(samples).std()), num_groups)
    low, high = compute_interval(PROPORTION, value, spread)
    return Metric(value=value, low=float(min(low, value)), high=float(max(high, value)), n=int(num_rows))


def count_group_kinds(groups: ArrayLike, hallucinated: ArrayLike) -> list[list[int]]:
    """Counts the groups of each kind: rows, hallucinated rows, and the number of such groups.

    Args:
        groups: The group of each row [N].
        hallucinated: 1 for hallucinated rows [N].
    """
    marks = np.asarray(hallucinated)
    if not len(marks):
        return []
    _, index = np.unique(groups, return_inverse=True)
    rows, positive = np.bincount(index), np.bincount(index, weights=marks).astype(np.int64)
    base = int(positive.max()) + 1  # sorting pairs coded as one number is many times faster than sorting pairs
    pairs, counts = np.unique(rows * base + positive, return_counts=True)
    return np.column_stack([pairs // base, pairs % base, counts]).tolist()
