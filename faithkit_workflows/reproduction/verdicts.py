"""Compares a figure of ours with a published one: within, above or below, by our interval or by the digits printed."""

from collections.abc import Iterable
from dataclasses import dataclass

WITHIN, ABOVE, BELOW, NOT_COMPARABLE = "within", "above", "below", "not comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure with its interval, where it has one.

    Args:
        n: Examples behind it.
    """

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None

    def times(self, factor: float) -> "Estimate":
        """Gives it in another unit, as percent of a share."""
        low, high = (None if bound is None else bound * factor for bound in (self.low, self.high))
        return Estimate(value=self.value * factor, low=low, high=high, n=self.n)


def verdict(ours: Estimate, published: float, *, digits: int) -> str:
    """Tells where ours lies.

    A published figure stands for all that round to it. Ours is within where one of them lies in our interval, or, where
    we have none, where ours rounds to it too.

    Args:
        published: As it was printed.
        digits: Behind the decimal point, of its column.
    """
    half = 0.5 * 10.0**-digits
    slack = half + 1e-9 * max(1.0, abs(published))
    low = ours.value if ours.low is None else ours.low
    high = ours.value if ours.high is None else ours.high
    if low > published + slack:
        return ABOVE
    return BELOW if high < published - slack else WITHIN


def digits_of(figures: Iterable[float | int | None]) -> int:
    """Counts the digits behind the point with which a column was printed; JSON leaves zeros at the end out."""
    printed = [f"{value!r}".partition(".")[2] for value in figures if isinstance(value, float)]
    return max((len(digits) for digits in printed), default=0)
