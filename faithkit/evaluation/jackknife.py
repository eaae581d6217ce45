"""Intervals for few groups: Student's t with the jackknife's standard error, in place of the bootstrap's percentiles.

With 15 or 20 groups percentile intervals of F1, recall or AUROC hold the truth in 87 to 92% of all cases and those here
in 92 to 99%; with 60 both hold in about 95% (tests/faithkit/evaluation/test_coverage.py). Shares are worked out on the
log-odds scale, so no bound leaves [0, 1], and reductions on the log scale of their ratio, so none is above 1. At 0 or 1
the jackknife sees no spread: there the interval is Clopper and Pearson's exact one for as many independent observations
as groups that define the metric. Values less their bias have as many degrees of freedom as groups carry their error.

Efron & Tibshirani 1993, ch. 11 (jackknife); Clopper & Pearson 1934; Satterthwaite 1946 (degrees of freedom).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

Values = NDArray[np.float64]
UPPER = 0.975
MAX_GROUPS = 500  # above, percentiles hold as often as they say, and as many more evaluations cost time


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of a value over what it becomes when groups are left out.

    Args:
        error: The standard error; NaN where leaving out a single group leaves nothing to measure.
        num_carrying: How many groups carry the error: all where each moves the value alike, 1 where one alone does.
        num_defining: Groups that define the value by themselves; counted where a share is 0 or 1 and has no error.
    """

    error: float
    num_carrying: float
    num_defining: int


def measure_spreads(statistic: Callable[[Values], Mapping[str, Values]], count: int) -> dict[str, Spread]:
    """Computes the spread of each metric of so many groups.

    Args:
        statistic: From weights [R, groups] to named values [R], NaN where undefined.
    """
    spreads = {name: spread_of(without_each) for name, without_each in statistic(1.0 - np.eye(count)).items()}
    if not all(spread.error for spread in spreads.values()):
        with np.errstate(invalid="ignore", divide="ignore"):
            alone = statistic(np.eye(count))
        for name, values in alone.items():
            spreads[name] = replace(spreads[name], num_defining=int(np.isfinite(values).sum()))
    return spreads


def spread_of(without_each: Values) -> Spread:
    """Computes the spread of a value from what it becomes without each group [groups]."""
    count = len(without_each)
    with np.errstate(invalid="ignore", divide="ignore"):
        squares = (without_each - without_each.mean()) ** 2  # one NaN makes the error NaN
        shares = squares / squares.sum()  # before they are squared again: tiny ones would vanish
        error, num_carrying = np.sqrt((count - 1) / count * squares.sum()), 1 / (shares**2).sum()
    return Spread(float(error), float(num_carrying), count)


def t_interval(value: float, spread: Spread, count: int) -> tuple[float, float]:
    """Computes the 95% interval of a number of any size."""
    reach = _quantile(count) * spread.error
    return value - reach, value + reach


def corrected_interval(value: float, spread: Spread) -> tuple[float, float]:
    """Computes the 95% interval of a value less its bias.

    With a degree of freedom for every group it held the calibration error of 20 groups in 88% of all cases, with those
    of the groups that carry the error it holds it in 95%: a few groups with rows in sparse bins decide.
    """
    reach = float(stdtrit(max(spread.num_carrying - 1, 1), UPPER)) * spread.error if spread.error else 0.0
    return value - reach, value + reach


def reduction_interval(value: float, spread: Spread, count: int) -> tuple[float, float]:
    """Computes the 95% interval of 1 - a ratio of rates, at most 1; without width where the ratio is 0."""
    ratio = 1 - value
    reach = _quantile(count) * spread.error / ratio if ratio > 0 else 0.0
    return 1 - ratio * float(np.exp(reach)), 1 - ratio * float(np.exp(-reach))


def share_interval(value: float, spread: Spread, count: int) -> tuple[float, float]:
    """Computes the 95% interval of a share, within [0, 1]; all of it where a single group carries the value."""
    if not np.isfinite(spread.error) or count < 2:
        return 0.0, 1.0
    if value <= 0 or value >= 1:
        reach = 1 - (1 - UPPER) ** (1 / max(spread.num_defining, 1))
        return (0.0, reach) if value <= 0 else (1 - reach, 1.0)
    odds = np.log(value / (1 - value)) + _quantile(count) * spread.error / (value * (1 - value)) * np.array([-1.0, 1.0])
    low, high = np.exp(-np.logaddexp(0, -odds))
    return float(low), float(high)


def two_sided_p(value: float, spread: Spread, count: int) -> float:
    """Computes the p-value of a difference from 0."""
    if not np.isfinite(spread.error) or count < 2:
        return 1.0
    if spread.error == 0:
        return 1.0 if value == 0 else 2.0 ** (1 - count)  # the sign test: every group says the same
    return float(2 * stdtr(count - 1, -abs(value) / spread.error))


def _quantile(count: int) -> float:
    return float(stdtrit(count - 1, UPPER))
