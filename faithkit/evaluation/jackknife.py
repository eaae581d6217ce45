"""Intervals for few groups: Student's t with the jackknife's standard error, in place of the bootstrap's percentiles.

With 15 to 60 groups percentile intervals of F1, recall or AUROC hold the truth in 87 to 93% of all cases and those here
in 93 to 98% (tests/faithkit/evaluation/test_coverage.py). Shares are worked out on the log-odds scale, so no bound
leaves [0, 1]. At 0 or 1 the jackknife sees no spread: there the interval is Clopper and Pearson's exact one for as many
independent observations as groups that define the metric.

Efron & Tibshirani 1993, ch. 11 (jackknife); Clopper & Pearson 1934.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

Values = NDArray[np.float64]
UPPER = 0.975
MAX_GROUPS = 200  # above, percentiles hold as often as they say, and n more evaluations of each metric cost time


def leave_one_out(count: int) -> Values:
    """Weights that leave out each group in turn [G, G]."""
    return 1.0 - np.eye(count)


def each_alone(count: int) -> Values:
    """Weights that keep each group alone [G, G]."""
    return np.eye(count)


@dataclass(frozen=True, slots=True)
class Spread:
    """How far a value moves when groups are left out.

    Args:
        error: The standard error; NaN where leaving out a single group leaves nothing to measure.
        num_defining: Groups that define the value by themselves.
    """

    error: float
    num_defining: int

    @classmethod
    def of(cls, without_each: Values, alone: Values) -> "Spread":
        """Measures it.

        Args:
            without_each: The value without each group in turn [G], NaN where undefined.
            alone: The value on each group alone [G], NaN where undefined.
        """
        count = len(without_each)
        moved = without_each - without_each.mean()  # one NaN makes the error NaN
        return cls(float(np.sqrt((count - 1) / count * (moved**2).sum())), int(np.isfinite(alone).sum()))


def t_interval(value: float, spread: Spread, count: int) -> tuple[float, float]:
    """The 95% interval of a number of any size."""
    reach = _quantile(count) * spread.error
    return value - reach, value + reach


def share_interval(value: float, spread: Spread, count: int) -> tuple[float, float]:
    """The 95% interval of a share, within [0, 1]; all of it where a single group carries the value."""
    if not np.isfinite(spread.error) or count < 2:
        return 0.0, 1.0
    if value <= 0 or value >= 1:
        reach = 1 - (1 - UPPER) ** (1 / max(spread.num_defining, 1))
        return (0.0, reach) if value <= 0 else (1 - reach, 1.0)
    odds = np.log(value / (1 - value)) + _quantile(count) * spread.error / (value * (1 - value)) * np.array([-1.0, 1.0])
    low, high = np.exp(-np.logaddexp(0, -odds))
    return float(low), float(high)


def two_sided_p(value: float, spread: Spread, count: int) -> float:
    """The p-value of a difference from 0."""
    if not np.isfinite(spread.error) or count < 2:
        return 1.0
    if spread.error == 0:
        return 1.0 if value == 0 else 2.0 ** (1 - count)  # the sign test: every group says the same
    return float(2 * stdtr(count - 1, -abs(value) / spread.error))


def _quantile(count: int) -> float:
    return float(stdtrit(count - 1, UPPER))
