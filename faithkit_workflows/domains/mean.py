"""Means over domains, each with the same weight, with intervals that resample groups within each domain.

The domains themselves are not resampled: the interval is that of the mean over these domains, and not over all that
there could be.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from faithkit.metrics.classification import KINDS
from faithkit.statistics.bootstrap import (
    Difference,
    Groups,
    Resamples,
    resample,
)
from faithkit.statistics.spread import Statistic, Values


def draw_domains(
    systems: Sequence[tuple[Groups, Statistic]], *, num_resamples: int = 1000, seed: int = 0
) -> list[Resamples]:
    """Draws each domain by itself, so that the resamples of two domains have nothing to do with each other."""
    return [
        resample(groups, statistic, num_resamples=num_resamples, seed=seed + number)
        for number, (groups, statistic) in enumerate(systems)
    ]


def mean_metric(draws: Sequence[Resamples], name: str) -> Difference | None:
    """Averages a metric over domains; None where one of them does not have it.

    The p-value is that of the mean against 0, which means something for differences alone. The interval of a metric
    whose resamples lie above it is corrected, as that of one domain is (`bootstrap`), and stays within [0, 1]. Some of
    the bias stays: of scores that are calibrated perfectly the mean over many domains lies above 0, and so may its
    interval.
    """
    if not draws or any(name not in one.values or not np.isfinite(one.values[name]) for one in draws):
        return None
    value = float(np.mean([one.values[name] for one in draws]))
    drawn = np.mean([one.samples[name] for one in draws], axis=0)
    found = _summed(name, value, drawn, sum(one.num_rows for one in draws))
    if found is None or not _is_debiased(name):
        return found
    return replace(found, low=max(found.low, 0.0), high=min(found.high, 1.0))


def mean_difference(first: Sequence[Resamples], second: Sequence[Resamples], name: str) -> Difference | None:
    """Averages the paired difference of two systems over domains; None where one of them lacks the metric.

    Draws are as they were drawn, so the correction of the difference is the only one. It is by the bias of the
    difference itself, which is the one system's less the other's. Where both are alike nothing is taken off. The system
    that is calibrated worse has less bias, and without a correction would look nearer to the other than it is.
    """
    pairs = list(zip(first, second, strict=True))
    if not pairs or any(name not in one.values or name not in other.values for one, other in pairs):
        return None
    value = float(np.mean([one.values[name] - other.values[name] for one, other in pairs]))
    drawn = np.mean([one.samples[name] - other.samples[name] for one, other in pairs], axis=0)
    return _summed(name, value, drawn, sum(one.num_rows for one, _ in pairs))


def _summed(name: str, value: float, drawn: Values, num_rows: int) -> Difference | None:
    samples = drawn[np.isfinite(drawn)]
    if not np.isfinite(value) or not len(samples):
        return None
    if _is_debiased(name):
        samples = samples - 2 * (samples.mean() - value)  # the bias of the value, and that of resampling it
    tail = min(np.count_nonzero(samples <= 0), np.count_nonzero(samples >= 0))
    low, high = np.quantile(samples, (0.025, 0.975))
    return Difference(
        value=value,
        low=float(min(low, value)),
        high=float(max(high, value)),
        p_value=min(1.0, 2 * (tail + 1) / (len(samples) + 1)),
        n=num_rows,
    )


def _is_debiased(name: str) -> bool:
    return name in KINDS and KINDS[name].is_debiased
