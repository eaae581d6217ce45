"""A metric: a number with its interval, and what is declared about it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from statistics import mean, stdev


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number with its 95% interval and the count of rows that it stands on; low and high are None outside tests."""

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

    def within(self, lowest: float, highest: float) -> "Metric":
        """Cuts the interval to the values that the metric can have."""
        if self.low is None or self.high is None:
            return self
        return replace(self, low=max(self.low, lowest), high=min(self.high, highest))


BOTH_SIDES = 0.975  # of Student's t, for a 95% interval


def average_runs(values: Sequence[float], n: int | None = None) -> Metric:
    """Computes the mean with its interval, Student's t over the values; that of shares stays within 0 and 1.

    One value alone has no interval.
    """
    if len(values) == 1:
        return Metric(value=values[0], n=n)
    from scipy.special import stdtrit

    middle, reach = mean(values), float(stdtrit(len(values) - 1, BOTH_SIDES)) * stdev(values) / len(values) ** 0.5
    found = Metric(value=middle, low=middle - reach, high=middle + reach, n=n)
    return found.within(0.0, 1.0) if all(0 <= value <= 1 for value in values) else found
