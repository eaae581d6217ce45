"""A metric with its interval; apart from what computes it, so that reading results loads no library of numbers."""

from dataclasses import dataclass, replace
from math import isfinite


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
