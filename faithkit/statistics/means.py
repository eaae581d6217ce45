"""Means over several trainings, with how far another training may lie."""

from collections.abc import Sequence
from statistics import mean, stdev

from faithkit.metrics.metric import Metric

BOTH_SIDES = 0.975  # of Student's t, for a 95% interval


def mean_of(values: Sequence[float], n: int | None = None) -> Metric:
    """Computes the mean with its interval, Student's t over the values; that of shares stays within 0 and 1.

    One value alone has no interval.
    """
    if len(values) == 1:
        return Metric(value=values[0], n=n)
    from scipy.special import stdtrit

    middle, reach = mean(values), float(stdtrit(len(values) - 1, BOTH_SIDES)) * stdev(values) / len(values) ** 0.5
    found = Metric(value=middle, low=middle - reach, high=middle + reach, n=n)
    return found.within(0.0, 1.0) if all(0 <= value <= 1 for value in values) else found
