"""Metrics: what is declared of each (range, direction, proportion or not), and values with 95% intervals.

Loads no numerical library, so that reading results stays fast.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from statistics import mean, stdev

from faithkit.statistics.quantiles import student_quantile

UPPER_QUANTILE = 0.975  # of a 95% interval


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricKind:
    """Declares what values a metric can take; its interval follows from this and never from its name.

    Args:
        low: The smallest possible value.
        high: The largest possible value.
        higher_is_better: The direction; None if neither end is better.
        is_proportion: A share of counted rows, or made of such shares (F1, AUROC). Its interval is computed on the
            log-odds scale, and is Clopper and Pearson's exact one at 0 and 1.
        is_reduction: 1 - a ratio of rates. Its interval is computed on the log scale of the ratio.
        is_debiased: Small samples push the value up, as for the calibration error. The interval is corrected by the
            bootstrap's estimate of this bias, and a second value `<name>_debiased` is reported.
    """

    low: float = -inf
    high: float = inf
    higher_is_better: bool | None = None
    is_proportion: bool = False
    is_reduction: bool = False
    is_debiased: bool = False

    def clip(self, value: float) -> float:
        """Moves a value into the range."""
        return min(max(value, self.low), self.high)

    @property
    def of_differences(self) -> "MetricKind":
        """Declares the difference of two values: it is at most as large as the range, in the same direction."""
        largest = self.high - self.low
        return MetricKind(low=-largest, high=largest, higher_is_better=self.higher_is_better)


NUMBER = MetricKind()
COST = MetricKind(low=0, higher_is_better=False)  # loss, perplexity
PROPORTION = MetricKind(low=0, high=1, is_proportion=True)
ACCURACY = replace(PROPORTION, higher_is_better=True)  # accuracy, F1, AUROC and their relatives
ERROR_RATE = replace(PROPORTION, higher_is_better=False)
SIMILARITY = MetricKind(low=0, high=1, higher_is_better=True)  # means of text overlaps, which are no proportions
CORRELATION = MetricKind(low=-1, high=1, higher_is_better=True)  # kappa
CALIBRATION_ERROR = MetricKind(low=0, high=1, higher_is_better=False, is_debiased=True)
REDUCTION = MetricKind(high=1, higher_is_better=True, is_reduction=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A value with its 95% interval and the number of rows behind it; low and high are None outside tests."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None

    def __post_init__(self) -> None:
        numbers = [number for number in (self.value, self.low, self.high) if number is not None]
        if not all(isinstance(number, int | float) and isfinite(number) for number in numbers):
            raise ValueError(f"a metric needs finite numbers, got {numbers}")

    def to_dict(self) -> dict[str, float | int]:
        """Converts to the form of `metrics.json`; fields that are None are left out."""
        items = {"value": self.value, "low": self.low, "high": self.high, "n": self.n}
        return {name: number for name, number in items.items() if number is not None}


def average_runs(values: Sequence[float], n: int | None = None, *, kind: MetricKind | None = None) -> Metric:
    """Averages several trainings, with Student's t interval within the range of the metric.

    A single training has no interval.

    Args:
        kind: What the metric is; None for one that is not declared, whose interval stays in [0, 1] if its values do.
    """
    if len(values) == 1:
        return Metric(value=values[0], n=n)
    center = mean(values)
    margin = student_quantile(UPPER_QUANTILE, len(values) - 1) * stdev(values) / len(values) ** 0.5
    kind = kind or (PROPORTION if all(0 <= value <= 1 for value in values) else NUMBER)
    return Metric(value=center, low=kind.clip(center - margin), high=kind.clip(center + margin), n=n)
