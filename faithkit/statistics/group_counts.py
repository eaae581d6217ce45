"""Counts groups by their kind (so many rows, so many of them hallucinated): all that a share and its interval need.

However many rows there are, there are few kinds; those of shards add up, so that no row is held.

>>> kinds_of(["a", "a", "b", "c"], [1, 0, 1, 1])
[[1, 1, 2], [2, 1, 1]]
>>> share_of_kinds([[1, 1, 2], [2, 1, 1]], num_resamples=100).value
0.75
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import CHUNK, MAX_GROUPS, Spread, measure_spreads, share_interval


def proportion_from_counts(found: Sequence[Sequence[int]], *, num_resamples: int, seed: int = 0) -> Metric | None:
    """Computes the share with its interval from how many groups there are of each kind, as `bootstrap` does from rows.

    Of up to `MAX_GROUPS` groups each is left out once; of more, drawing kinds is drawing groups.

    Args:
        found: Rows, hallucinated rows, and the number of such groups.
    """
    table = np.array([kind for kind in found if kind[0]], np.int64).reshape(-1, 3)
    kinds, counts = table[:, :2], table[:, 2]
    num_groups, (num_rows, num_called) = counts.sum(), counts @ kinds
    if not num_rows:
        return None
    value = float(num_called / num_rows)
    if num_groups == 1:
        return Metric(value=value, n=int(num_rows))
    if num_groups <= MAX_GROUPS:
        groups = np.repeat(kinds, counts, axis=0).T
        spreads = measure_spreads(
            lambda weights: {"share": (weights @ groups[1]) / (weights @ groups[0])}, int(num_groups)
        )
        low, high = share_interval(value, spreads["share"], int(num_groups))
        return Metric(value=value, low=min(low, value), high=max(high, value), n=int(num_rows))
    generator, chances = np.random.default_rng(seed), counts / num_groups
    at_a_time = max(1, CHUNK // len(kinds))
    drawn = []
    for start in range(0, num_resamples, at_a_time):
        size = min(at_a_time, num_resamples - start)
        totals = generator.multinomial(num_groups, chances, size=size) @ kinds  # [size, 2]: rows, hallucinated ones
        drawn.append(totals[:, 1] / totals[:, 0])
    error = float(np.concatenate(drawn).std())
    low, high = share_interval(value, Spread.alike(error, int(num_groups)), int(num_groups))
    return Metric(value=value, low=float(min(low, value)), high=float(max(high, value)), n=int(num_rows))


def count_group_kinds(groups: ArrayLike, called: ArrayLike) -> list[list[int]]:
    """Counts the groups of each kind: rows, hallucinated rows, and the number of such groups.

    Args:
        groups: Names the rows' groups [N].
        called: 1 for hallucinated [N].
    """
    called = np.asarray(called)
    if not len(called):
        return []
    _, index = np.unique(groups, return_inverse=True)
    rows, positives = np.bincount(index), np.bincount(index, weights=called).astype(np.int64)
    base = int(positives.max()) + 1  # a pair as one number: sorting those is many times as fast as sorting pairs
    pairs, counts = np.unique(rows * base + positives, return_counts=True)
    return np.column_stack([pairs // base, pairs % base, counts]).tolist()
