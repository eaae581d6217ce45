"""Intervals for few groups: Student's t with the jackknife's standard error, in place of the bootstrap's percentiles.

With 15 or 20 groups percentile intervals of F1, recall or AUROC hold the truth in 87 to 92% of all cases and those here
in 92 to 99%; with 60 both hold in about 95% (tests/faithkit/statistics/test_coverage.py). Shares are worked out on the
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
MAX_GROUPS = 500  # above, resamples tell the error as well, and as many more evaluations cost time
NUM_SINGLE, NUM_BLOCKS = 50, 200  # of more groups: those looked at one by one, and parts looked at as wholes
CHUNK = 1 << 20  # weights held at once
NO_MOVE = 1e-12  # of a value: less is rounding
QUIET = 0.1  # of the largest part in a difference, and of the whole difference: less tells nothing of it


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of a value over what it becomes when groups are left out.

    Args:
        error: The standard error; NaN where leaving out a single group leaves nothing to measure.
        num_moving: Groups without which the value is another one.
        num_telling: The same, but where a few groups make all of a difference only those: the ones in which two systems
            differ.
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
        squares = (without_each - without_each.mean()) ** 2  # one NaN makes the error NaN
        shares = squares / squares.sum()  # before they are squared again: tiny ones would vanish
        error, num_carrying = np.sqrt((count - 1) / count * squares.sum()), 1 / (shares**2).sum()
    moved = np.abs(without_each - value)
    if not np.isnan(error) and moved.max() <= NO_MOVE * abs(value):
        error, num_carrying = 0.0, float(count)
    moving = moved > NO_MOVE * moved.max()
    return Spread(
        error=float(error),
        num_moving=int(moving.sum()),
        num_telling=min(_count_telling(without_each[moving], value), count if num_defining is None else num_defining),
        num_carrying=float(num_carrying),
        num_defining=count if num_defining is None else num_defining,
    )


def _count_telling(without_each: Values, value: float) -> int:
    """Counts the groups that make a difference: all, unless fewer than half have a part in it and the others none."""
    count = len(without_each)
    parts = count * value - (count - 1) * without_each  # the jackknife's pseudo-values, which average to the value
    loud = np.abs(parts) > QUIET * np.abs(parts).max(initial=0.0)
    few = 2 * loud.sum() < count and abs(parts[~loud].sum()) <= QUIET * abs(parts.sum())
    return int(loud.sum()) if few else count


def count_defining(statistic: Statistic, count: int, names: Collection[str]) -> dict[str, int]:
    """Counts the groups that define each metric by themselves, or together with a group of the other kind.

    AUROC or macro-F1 need rows of both classes. Where no group has both, the rarer kind counts. Of more than
    `MAX_GROUPS` groups a few are looked at; where most of those do not define a metric by themselves, as many count as
    parts of all groups that define it, which may be too few but never too many.
    """

    def defined(rows: NDArray[np.intp], width: int = 1, partner: int | None = None) -> dict[str, NDArray[np.bool_]]:
        """Which of these groups, each with those up to `width` behind it, define which metric."""
        parts = []
        for some in np.array_split(rows, -(-len(rows) * count // CHUNK)):
            weights = np.zeros((len(some), count))
            for offset in range(width):
                weights[np.arange(len(some)), np.minimum(some + offset, count - 1)] = 1.0
            if partner is not None:
                weights[:, partner] = 1.0
            with np.errstate(invalid="ignore", divide="ignore"):
                parts.append(statistic(weights))
        return {name: np.isfinite(np.concatenate([part[name] for part in parts])) for name in names}

    if count > MAX_GROUPS:
        single = defined(np.linspace(0, count - 1, NUM_SINGLE).astype(np.intp))
        found = {name: round(groups.mean() * count) for name, groups in single.items()}
        if any(2 * number < count for number in found.values()):
            width = -(-count // NUM_BLOCKS)
            blocks = defined(np.arange(0, count, width), width)
            found |= {name: int(blocks[name].sum()) for name, number in found.items() if 2 * number < count}
        return found
    every = np.arange(count)
    alone = defined(every)
    found = {name: int(groups.sum()) for name, groups in alone.items()}
    wanting = {name: int(np.argmin(groups)) for name, groups in alone.items() if 2 * groups.sum() < count}
    with_first = {partner: defined(every, partner=partner) for partner in set(wanting.values())}
    others = {name: with_first[partner][name] & ~alone[name] for name, partner in wanting.items()}
    second = {name: int(np.argmax(groups)) for name, groups in others.items() if groups.any()}
    with_other = {partner: defined(every, partner=partner) for partner in set(second.values())}
    for name, partner in second.items():
        found[name] += min(int(others[name].sum()), int((with_other[partner][name] & ~alone[name]).sum()))
    return found


def t_interval(value: float, spread: Spread) -> tuple[float, float]:
    """Computes the 95% interval of a number of any size."""
    reach = _quantile(spread.num_moving) * spread.error
    return value - reach, value + reach


def difference_interval(value: float, spread: Spread) -> tuple[float, float]:
    """Computes the 95% interval of a difference; where all groups say the same, that of the sign test."""
    if spread.error == 0 and value:
        reach = 2 * abs(value) * _exact_reach(spread.num_defining)  # as many may say the opposite
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
        reach = _exact_reach(spread.num_defining)
        return (0.0, reach) if value <= 0 else (1 - reach, 1.0)
    reach = _quantile(spread.num_moving) * spread.error / (value * (1 - value))
    odds = np.log(value / (1 - value)) + reach * np.array([-1.0, 1.0])
    low, high = np.exp(-np.logaddexp(0, -odds))
    return float(low), float(high)


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
