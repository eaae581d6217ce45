"""Metrics: what is declared of each (range, direction, proportion or not), values with 95% intervals, and their file.

A run's `metrics.json` has named metrics with intervals, and what was measured on what:

{"metrics": {"test/begin/macro_f1": {"value": 0.71, "low": 0.69, "high": 0.73, "n": 1864}}, "meta": {...}}

Loads no numerical library, so that reading results stays fast, and an environment for scoring needs no scipy:
Student's t and the beta distribution are computed here. The regularised incomplete beta function is a continued
fraction (Abramowitz & Stegun 26.5.8, by Lentz's method).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, inf, isfinite, lgamma, log, log1p, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from faithkit.files.atomic import write_json
from faithkit.files.jsonl import read_strict_json

_TINY, _EXACT = 1e-300, 1e-16
UPPER_QUANTILE = 0.975  # of a 95% interval


def beta_cdf(x: float, a: float, b: float) -> float:
    """Computes P(X <= x) for the beta distribution with parameters a and b."""
    if not 0 < x < 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - beta_cdf(1 - x, b, a)
    value, numerator, denominator = 1.0, 1.0, 0.0
    for step in range(100_000):  # the square root of a or b suffices
        half, is_odd = divmod(step, 2)
        if not step:
            term = 1.0
        elif is_odd:
            term = -(a + half) * (a + b + half) * x / ((a + step - 1) * (a + step))
        else:
            term = half * (b - half) * x / ((a + step - 1) * (a + step))
        denominator = 1 / (1 + term * denominator or _TINY)
        numerator = 1 + term / numerator or _TINY
        value *= numerator * denominator
        if step and abs(numerator * denominator - 1) < _EXACT:
            break
    return x * (1 - x) * _beta_density(x, a, b) * (value - 1) / a


@lru_cache(4096)
def beta_quantile(probability: float, a: float, b: float) -> float:
    """Computes the x in [0, 1] with `beta_cdf(x, a, b) == probability`, by Newton's method within a shrinking range."""
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(200):
        error = beta_cdf(x, a, b) - probability
        low, high = (low, x) if error > 0 else (x, high)
        better = x - error / (_beta_density(x, a, b) or _TINY)
        if not low < better < high:
            better = (low + high) / 2
        if abs(better - x) <= _EXACT * x:
            break
        x = better
    return x


def student_cdf(t: float, freedom: float) -> float:
    """Computes P(T <= t) for Student's t with `freedom` degrees of freedom."""
    tail = beta_cdf(freedom / (freedom + t * t), freedom / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


def student_quantile(probability: float, freedom: float) -> float:
    """Computes the t with `student_cdf(t, freedom) == probability`, for probabilities above 0.5."""
    share = beta_quantile(2 * probability - 1, 0.5, freedom / 2)
    return sqrt(freedom * share / (1 - share)) if share < 1 else inf


def _beta_density(x: float, a: float, b: float) -> float:
    return exp(lgamma(a + b) - lgamma(a) - lgamma(b) + (a - 1) * log(x) + (b - 1) * log1p(-x))


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


def metric_name(split: str, dataset: str, metric: str) -> str:
    """Builds the full name, `split/dataset/metric`."""
    assert split and dataset and "/" not in split + dataset, f"no part of a metric's name: {split!r}, {dataset!r}"
    return f"{split}/{dataset}/{metric}"


def full_names(split: str, dataset: str, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Renames metrics to their full names."""
    return {metric_name(split, dataset, name): metric for name, metric in metrics.items()}


def write_results(path: str | Path, metrics: Mapping[str, Metric], meta: Mapping[str, Any]) -> None:
    """Writes `metrics.json` in one step; metrics have their full names."""
    short = [name for name in metrics if name.count("/") < 2]
    assert not short, f"metrics need full names, split/dataset/metric: {short}"
    write_json(path, {"metrics": {name: metric.to_dict() for name, metric in metrics.items()}, "meta": dict(meta)})


def read_metrics(path: Path) -> dict[str, dict[str, Any]]:
    """Reads the metrics of `metrics.json` as they are stored; none if a run has not come to its end."""
    if not path.exists():
        return {}
    found = read_strict_json(path, hint="write it again: resume=RUN")
    return dict(found["metrics"])


def read_meta(path: Path) -> dict[str, Any]:
    """Reads what `metrics.json` has besides metrics; nothing if a run has not come to its end."""
    return dict(read_strict_json(path, hint="write it again: resume=RUN")["meta"]) if path.exists() else {}
