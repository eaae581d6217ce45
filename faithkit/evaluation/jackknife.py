"""Intervals for few groups: Student's t with the jackknife's standard error, in place of the bootstrap's percentiles.

With 15 or 20 groups percentile intervals of F1, recall or AUROC hold the truth in 87 to 92% of all cases and those here
in 92 to 99%; with 60 both hold in about 95% (tests/faithkit/evaluation/test_coverage.py). Shares are worked out on the
log-odds scale, so no bound leaves [0, 1], and reductions on the log scale of their ratio, so none is above 1. At 0 or 1
the jackknife sees no spread: there the interval is Clopper and Pearson's exact one for as many independent observations
as groups that define the metric.

Degrees of freedom count the groups that speak of a value: of a share those that move it (of recall those with a
positive row, of a slice its own), of a value less its bias those that carry its error, and of a difference those in
which the systems differ, where they are few.

Efron & Tibshirani 1993, ch. 11 (jackknife); Clopper & Pearson 1934; Satterthwaite 1946 (degrees of freedom).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

Values = NDArray[np.float64]
Statistic = Callable[
    [Values], Mapping[str, Values]
]  # from weights [R, groups] to named values [R], NaN where undefined
UPPER = 0.975
MAX_GROUPS = 500  # above, percentiles hold as often as they say, and as many more evaluations cost time
MAX_ALONE = 20_000  # groups that are looked at one by one; of more, an even part stands for all
CHUNK = 1 << 20  # weights held at once
NO_MOVE = 1e-12  # of a value: less is rounding
QUIET = 0.1  # of the largest move: a difference that such groups make is what the others' absence leaves


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of a value over what it becomes when groups are left out.

    Args:
        error: The standard error; NaN where leaving out a single group leaves nothing to measure.
        num_moving: Groups without which the value is another one.
        num_telling: The same, but where most groups hardly move it only those that do: of a difference of shares the
            groups in which two systems differ.
        num_carrying: How many groups carry the error: all where each moves the value alike, 1 where one alone does.
        num_defining: Groups that define the value; counted where it has no error.
    """

    error: float
    num_moving: int
    num_telling: int
    num_carrying: float
    num_defining: int

    @classmethod
    def alike(cls, error: float, count: int) -> "Spread":
        """The spread of a value that each of so many groups speaks of."""
        return cls(error, count, count, count, count)


def measure_spreads(statistic: Statistic, count: int) -> dict[str, Spread]:
    """Computes the spread of each metric of so many groups."""
    values = statistic(np.ones((1, count)))
    spreads = {
        name: spread_of(without_each, float(values[name][0]))
        for name, without_each in statistic(1.0 - np.eye(count)).items()
    }
    if constant := [name for name, spread in spreads.items() if not spread.error]:
        for name, defining in count_defining(statistic, count, constant).items():
            spreads[name] = replace(spreads[name], num_defining=defining)
    return spreads


def spread_of(without_each: Values, value: float, num_defining: int | None = None) -> Spread:
    """Computes the spread of a value from what it becomes without each group [groups]."""
    count = len(without_each)
    with np.errstate(invalid="ignore", divide="ignore"):
        moves = np.abs(without_each - without_each.mean())  # one NaN makes the error NaN
        squares = moves**2
        shares = squares / squares.sum()  # before they are squared again: tiny ones would vanish
        error, num_carrying = np.sqrt((count - 1) / count * squares.sum()), 1 / (shares**2).sum()
        moved = np.abs(without_each - value)
        if not np.isnan(error) and moved.max() <= NO_MOVE * abs(value):
            error, num_carrying = 0.0, float(count)
        num_moving = int((moved > NO_MOVE * moved.max()).sum())
        loud = int((moves > QUIET * moves.max()).sum())
    return Spread(
        error=float(error),
        num_moving=num_moving,
        num_telling=loud if 2 * loud < count else count,
        num_carrying=float(num_carrying),
        num_defining=count if num_defining is None else num_defining,
    )


def count_defining(statistic: Statistic, count: int, names: Collection[str]) -> dict[str, int]:
    """Counts the groups that define each metric by themselves, or together with a group of the other kind.

    AUROC or macro-F1 need rows of both classes. Where no group has both, the rarer kind counts.
    """
    step = -(-count // MAX_ALONE)
    looked_at = np.arange(0, count, step)

    def defined(partner: int | None = None) -> dict[str, NDArray[np.bool_]]:
        """Which groups define which metric, each by itself or with a partner."""
        parts = []
        for rows in np.array_split(looked_at, -(-len(looked_at) * count // CHUNK)):
            weights = np.zeros((len(rows), count))
            weights[np.arange(len(rows)), rows] = 1.0
            if partner is not None:
                weights[:, partner] = 1.0
            with np.errstate(invalid="ignore", divide="ignore"):
                parts.append(statistic(weights))
        return {name: np.isfinite(np.concatenate([part[name] for part in parts])) for name in names}

    alone = defined()
    found = {name: int(groups.sum()) for name, groups in alone.items()}
    if any(2 * number < len(looked_at) for number in found.values()):
        with_first = defined(int(looked_at[0]))
        for name, groups in with_first.items():
            others = groups & ~alone[name]
            if 2 * found[name] < len(looked_at) and not alone[name][0] and others.any():
                with_other = defined(int(looked_at[others][0]))[name] & ~alone[name]
                found[name] += min(int(others.sum()), int(with_other.sum()))
    return {name: number * step for name, number in found.items()}


def t_interval(value: float, spread: Spread) -> tuple[float, float]:
    """Computes the 95% interval of a number of any size."""
    reach = _quantile(spread.num_moving) * spread.error
    return value - reach, value + reach


def difference_interval(value: float, spread: Spread) -> tuple[float, float]:
    """Computes the 95% interval of a difference; where all groups say the same, by how many they are."""
    if spread.error == 0 and value:
        reach = abs(value) * _exact_reach(spread.num_defining)
        return (value - reach, value) if value > 0 else (value, value + reach)
    reach = _quantile(spread.num_telling) * spread.error
    return value - reach, value + reach


def corrected_interval(value: float, spread: Spread) -> tuple[float, float]:
    """Computes the 95% interval of a value less its bias.

    With a degree of freedom for every group it held the calibration error of 20 groups in 88% of all cases, with those
    of the groups that carry the error it holds it in 95%: a few groups with rows in sparse bins decide.
    """
    reach = _quantile(spread.num_carrying) * spread.error if spread.error else 0.0
    return value - reach, value + reach


def reduction_interval(value: float, spread: Spread) -> tuple[float, float]:
    """Computes the 95% interval of 1 - a ratio of rates, at most 1; without width where the ratio is 0."""
    ratio = 1 - value
    reach = _quantile(spread.num_moving) * spread.error / ratio if ratio > 0 else 0.0
    return 1 - ratio * float(np.exp(reach)), 1 - ratio * float(np.exp(-reach))


def share_interval(value: float, spread: Spread, count: int) -> tuple[float, float]:
    """Computes the 95% interval of a share, within [0, 1]; all of it where a single group carries the value."""
    if not np.isfinite(spread.error) or count < 2:
        return 0.0, 1.0
    if value <= 0 or value >= 1:
        return exact_interval(value, spread.num_defining)
    reach = _quantile(spread.num_moving) * spread.error / (value * (1 - value))
    odds = np.log(value / (1 - value)) + reach * np.array([-1.0, 1.0])
    low, high = np.exp(-np.logaddexp(0, -odds))
    return float(low), float(high)


def exact_interval(value: float, num_defining: int) -> tuple[float, float]:
    """Computes Clopper and Pearson's 95% interval of a share that is 0 or 1 in all of so many groups."""
    reach = _exact_reach(num_defining)
    return (0.0, reach) if value <= 0 else (1 - reach, 1.0)


def two_sided_p(value: float, spread: Spread, count: int) -> float:
    """Computes the p-value of a difference from 0, not below that of the sign test where few groups tell of it."""
    if not np.isfinite(spread.error) or count < 2:
        return 1.0
    if spread.error == 0:
        return 1.0 if value == 0 else sign_test(spread.num_defining)  # every group says the same
    p_value = float(2 * stdtr(max(spread.num_telling - 1, 1), -abs(value) / spread.error))
    return max(p_value, sign_test(spread.num_telling)) if spread.num_telling < count else p_value


def sign_test(count: int) -> float:
    """The two-sided p-value of so many groups that all say the same."""
    return min(1.0, 2.0 ** (1 - count))


def _exact_reach(count: int) -> float:
    return float(1 - (1 - UPPER) ** (1 / max(count, 1)))


def _quantile(count: float) -> float:
    return float(stdtrit(max(count - 1, 1), UPPER))
