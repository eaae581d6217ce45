"""Means over domains, each with the same weight, with intervals that resample groups within each domain.

The domains themselves are not resampled: the interval is that of the mean over these domains, and not over all that
there could be.
"""

from collections.abc import Sequence

import numpy as np

from faithkit.evaluation.intervals import LOWER, UPPER, Difference, Draws, Groups, Statistic, Values, draw


def draw_domains(
    systems: Sequence[tuple[Groups, Statistic]], *, num_resamples: int = 1000, seed: int = 0
) -> list[Draws]:
    """Draws each domain by itself, so that the resamples of two domains have nothing to do with each other."""
    return [
        draw(groups, statistic, num_resamples=num_resamples, seed=seed + number)
        for number, (groups, statistic) in enumerate(systems)
    ]


def mean_metric(draws: Sequence[Draws], name: str) -> Difference | None:
    """Averages a metric over domains; None where one of them does not have it.

    The p-value is that of the mean against 0, which means something for differences alone.
    """
    if not draws or any(name not in one.values or not np.isfinite(one.values[name]) for one in draws):
        return None
    value = float(np.mean([one.values[name] for one in draws]))
    return _summed(value, np.mean([one.drawn[name] for one in draws], axis=0), sum(one.num_rows for one in draws))


def mean_difference(first: Sequence[Draws], second: Sequence[Draws], name: str) -> Difference | None:
    """Averages the paired difference of two systems over domains; None where one of them lacks the metric."""
    pairs = list(zip(first, second, strict=True))
    if not pairs or any(name not in one.values or name not in other.values for one, other in pairs):
        return None
    value = float(np.mean([one.values[name] - other.values[name] for one, other in pairs]))
    drawn = np.mean([one.drawn[name] - other.drawn[name] for one, other in pairs], axis=0)
    return _summed(value, drawn, sum(one.num_rows for one, _ in pairs))


def _summed(value: float, drawn: Values, num_rows: int) -> Difference | None:
    samples = drawn[np.isfinite(drawn)]
    if not np.isfinite(value) or not len(samples):
        return None
    tail = min(np.count_nonzero(samples <= 0), np.count_nonzero(samples >= 0))
    low, high = np.quantile(samples, (LOWER, UPPER))
    return Difference(
        value=value,
        low=float(min(low, value)),
        high=float(max(high, value)),
        p_value=min(1.0, 2 * (tail + 1) / (len(samples) + 1)),
        n=num_rows,
    )
