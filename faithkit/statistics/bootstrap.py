"""Cluster bootstrap: dialogues or documents are resampled whole, because their rows are not independent.

A resample is a vector of weights: how often each group was drawn. A metric that follows from weighted sums is computed
for hundreds of resamples in one matrix product, so that thousands of resamples of a large benchmark take a second.

`conclude` says in words whether one system is better than another. The interval of the paired difference decides. One
without 0 shows a difference. One that contains 0 shows that two systems are equivalent only if it lies within the
smallest difference of interest, `SMALLEST`; a wider one shows that there are too few rows to decide. A difference that
no group shows may still be that of 3 / groups of all (the rule of three), so that at least 60 groups show equivalence.
Fewer than `MIN_ROWS` rows or `MIN_GROUPS` groups decide nothing, whatever the interval is, since it is rough there.

Schuirmann 1987 (equivalence by two one-sided tests; the 95% interval used here is stricter than their 90%).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from faithkit.errors import UserError
from faithkit.statistics.metric import PROPORTION, Metric, MetricKind
from faithkit.statistics.spread import (
    FEW_GROUPS,
    MAX_GROUPS,
    MAX_WEIGHTS,
    Spread,
    Statistic,
    Values,
    compute_interval,
    count_defining_groups,
    difference_from_zero,
)

MIN_GROUPS_OF_SHARE = 5  # of fewer groups, the interval of a share is over rows
Kinds = MetricKind | Mapping[str, MetricKind]
MIN_ROWS, MIN_GROUPS = 30, 10
SMALLEST = 0.05  # the smallest difference of interest, of metrics from 0 to 1: five points of percent


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredMetrics:
    """Named metrics, and notes on those that were left out."""

    metrics: dict[str, Metric]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference of two systems on the same groups; `p_value` is two-sided.

    Args:
        n: The number of rows.
        higher_is_better: The direction of the metric; None if neither end is better.
    """

    value: float
    low: float
    high: float
    p_value: float
    n: int
    num_groups: int
    higher_is_better: bool | None = None

    @property
    def metric(self) -> Metric:
        """The difference with its interval."""
        return Metric(value=self.value, low=self.low, high=self.high, n=self.n)

    def to_metrics(self, name: str) -> dict[str, Metric]:
        """Names the difference and its p-value as metrics.json has them."""
        return {f"difference/{name}": self.metric, f"p_value/{name}": Metric(value=self.p_value, n=self.n)}


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The group of each row: `index` [N] numbers groups in the order of their names, so row order changes nothing."""

    index: NDArray[np.intp]
    count: int

    @classmethod
    def of(cls, names: Iterable[str]) -> "Groups":
        """Numbers the groups of rows by their names."""
        rows = list(names)
        position = {name: place for place, name in enumerate(sorted(set(rows)))}
        return cls(np.fromiter((position[name] for name in rows), np.intp, len(rows)), len(position))

    def sums(self, values: ArrayLike) -> Values:
        """Sums rows by group: [N] to [G], [N, K] to [G, K]."""
        table = np.asarray(values, np.float64)
        columns = table[:, None] if table.ndim == 1 else table
        summed = [np.bincount(self.index, weights=column, minlength=self.count) for column in columns.T]
        stacked = np.stack(summed, axis=1).astype(np.float64, copy=False)
        return stacked[:, 0] if table.ndim == 1 else stacked


def mean_statistic(groups: Groups, columns: Mapping[str, ArrayLike]) -> Statistic:
    """Makes a statistic of means over rows, one for each named column [N]."""
    sizes = groups.sums(np.ones(len(groups.index)))
    sums = {name: groups.sums(column) for name, column in columns.items()}

    def statistic(weights: Values) -> dict[str, Values]:
        total = weights @ sizes
        return {name: weights @ column / total for name, column in sums.items()}

    return statistic


class Resamples:
    """The metrics of one system on all data, on each resample, and without each group.

    Resamples of several systems on the same groups, with the same number and seed, are paired: their differences need
    no further resampling, so that all pairs of many systems cost next to nothing.

    Args:
        statistic: Computes the metrics from the groups' weights.
    """

    def __init__(self, groups: Groups, statistic: Statistic, *, num_resamples: int = 1000, seed: int = 0):
        if num_resamples < 1:
            raise UserError(f"num_resamples is {num_resamples}", hint="use 1 or more; 1000 is usual")
        if not groups.count:
            raise ValueError("nothing to resample: there are no groups")
        generator, parts = np.random.default_rng(seed), []
        size = max(1, MAX_WEIGHTS // max(groups.count, len(groups.index)))
        for start in range(0, num_resamples, size):
            rows = min(size, num_resamples - start)
            drawn = generator.integers(groups.count, size=(rows, groups.count))
            drawn += np.arange(rows)[:, None] * groups.count  # each resample counts in its own range
            counts = np.bincount(drawn.ravel(), minlength=rows * groups.count)
            parts.append(statistic(counts.reshape(rows, -1).astype(np.float64)))
        self.num_rows, self.num_groups, self.num_resamples = len(groups.index), groups.count, num_resamples
        self.values = {name: float(value) for name, [value] in statistic(np.ones((1, groups.count))).items()}
        self.samples = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        # Without each group; not of one group, nor of more than `MAX_GROUPS`.
        self.left_out = statistic(1.0 - np.eye(groups.count)) if 1 < groups.count <= MAX_GROUPS else {}
        self._statistic = statistic
        self._num_defining: dict[str, int] = {}

    def metrics(self, kinds: Kinds, n: Mapping[str, int] | int | None = None) -> ScoredMetrics:
        """Computes the metrics with 95% intervals over groups (Efron & Tibshirani 1993, ch. 13).

        The interval follows from the metric's kind (`compute_interval`) and its standard error: by the jackknife for
        up to `MAX_GROUPS` groups, by the bootstrap for more. It is widened where it would miss the value itself.

        Args:
            kinds: What each metric is, by name, or of all metrics alike.
            n: The number of rows behind each metric, by name where they differ; default: all rows.
        """
        spreads = {}  # by the jackknife, or of many groups by the bootstrap
        for name, value in self.values.items():
            if name in self.left_out:
                spreads[name] = Spread.from_leave_one_out(self.left_out[name], value)
            else:
                finite = self.samples[name][np.isfinite(self.samples[name])]
                error = float(finite.std()) if len(finite) else np.nan
                spreads[name] = Spread.uniform(error, self.num_groups)
        constant = [name for name, value in self.values.items() if not spreads[name].error or value in (0, 1)]
        defining = self._count_defining(constant) if constant and self.num_groups > 1 else {}
        metrics, notes = {}, []
        for name, value in self.values.items():
            kind, spread = kinds if isinstance(kinds, MetricKind) else kinds[name], spreads[name]
            samples = self.samples[name][np.isfinite(self.samples[name])]
            if not np.isfinite(value):
                notes.append(f"{name} is left out: it is not defined on this data")
                continue
            if missing := self.num_resamples - len(samples):
                notes.append(f"{name}: {missing} of {self.num_resamples} resamples do not define it")
            is_corrected = kind.is_debiased and len(samples) > 0
            center = kind.clip(2 * value - float(samples.mean())) if is_corrected else value  # the value - its bias
            if not np.isfinite(spread.error) and not kind.is_proportion:  # undefined without one of the groups
                spread = Spread.uniform(float(samples.std()) if len(samples) else 0.0, self.num_groups)
            if name in defining:
                spread = replace(spread, num_defining=defining[name])
            if self.num_groups > 1:
                low, high = compute_interval(kind, center, spread)
            else:  # anything, where it is a share
                one = Spread.uniform(0.0, 1)
                low, high = compute_interval(kind, center, one) if kind.is_proportion else (center, center)
            shown = {name: value, f"{name}_debiased": center} if kind.is_debiased else {name: value}
            rows = self.num_rows if n is None else n if isinstance(n, int) else n.get(name, self.num_rows)
            for key, number in shown.items():
                metrics[key] = Metric(value=number, low=float(min(low, number)), high=float(max(high, number)), n=rows)
        if self.num_groups < FEW_GROUPS:
            effect = "group: its intervals show nothing" if self.num_groups == 1 else "groups: its intervals are rough"
            notes.append(f"the data has only {self.num_groups} {effect}")
        return ScoredMetrics(metrics=metrics, notes=tuple(notes))

    def subtract(self, other: "Resamples", kinds: Kinds, metrics: Sequence[str] = ()) -> dict[str, Difference]:
        """Computes the differences from another system (Koehn 2004, paired bootstrap), metric by metric.

        Interval and p-value are Student's t, the interval within the range of the metric. Neither is more certain than
        the sign test of the groups in which the systems differ, where these are few.

        Args:
            metrics: Those to subtract; empty for all that both have.
        """
        names = [name for name in metrics or self.values if name in self.values and name in other.values]
        defining, others = self._count_defining(names), other._count_defining(names)
        found = {}
        for name in names:
            value, samples = self.values[name] - other.values[name], self.samples[name] - other.samples[name]
            finite = samples[np.isfinite(samples)]
            if not np.isfinite(value) or not len(finite):
                continue
            kind = (kinds if isinstance(kinds, MetricKind) else kinds[name]).of_differences
            num_defining = min(defining[name], others[name])
            if name in self.left_out:
                spread = Spread.from_leave_one_out(self.left_out[name] - other.left_out[name], value, num_defining)
            else:
                # A resample misses all of k groups among many with a chance of exp(-k): this counts those that differ.
                missing = 1 - np.count_nonzero(finite) / len(samples)
                differing = max(1, round(-np.log(missing))) if missing else self.num_groups
                count = self.num_groups
                spread = Spread(float(finite.std()), count, count, min(num_defining, differing), num_defining)
            *bounds, p_value = difference_from_zero(value, spread, self.num_groups)
            low, high = map(kind.clip, bounds)
            found[name] = Difference(
                value=value,
                low=float(min(low, value)),
                high=float(max(high, value)),
                p_value=p_value,
                n=self.num_rows,
                num_groups=self.num_groups,
                higher_is_better=kind.higher_is_better,
            )
        return found

    def _count_defining(self, names: Sequence[str]) -> dict[str, int]:
        """Counts the groups that define each metric, each once."""
        if missing := [name for name in names if name not in self._num_defining]:
            self._num_defining |= count_defining_groups(self._statistic, self.num_groups, missing)
        return self._num_defining


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Evaluation:
    """All that the metrics of one system follow from; `Board` compares several on the same rows.

    Args:
        statistic: Computes the metrics from the groups' weights.
        n: The number of rows behind each metric, by name where they differ; None for all rows.
        notes: What is uncertain or left out.
        right: Marks the rows that the system judges rightly [N]; None for what no label judges.
    """

    groups: Groups
    statistic: Statistic
    kinds: Kinds
    n: Mapping[str, int] | int | None = None
    notes: tuple[str, ...] = ()
    right: NDArray[np.bool_] | None = None

    def score(self, *, num_resamples: int = 1000) -> ScoredMetrics:
        """Computes the metrics with 95% intervals."""
        drawn = Resamples(self.groups, self.statistic, num_resamples=num_resamples)
        found = drawn.metrics(self.kinds, self.n)
        return replace(found, notes=(*self.notes, *found.notes))

    def subtract(self, other: "Evaluation", *, num_resamples: int = 1000) -> dict[str, Difference]:
        """Subtracts the metrics of another system on the same rows."""
        one, two = (Resamples(self.groups, each.statistic, num_resamples=num_resamples) for each in (self, other))
        return one.subtract(two, self.kinds)


def bootstrap(
    groups: Groups,
    statistic: Statistic,
    *,
    kinds: Kinds,
    n: Mapping[str, int] | int | None = None,
    num_resamples: int = 1000,
    seed: int = 0,
) -> ScoredMetrics:
    """Computes metrics with 95% intervals over groups (`Resamples.metrics`) of one system alone."""
    return Resamples(groups, statistic, num_resamples=num_resamples, seed=seed).metrics(kinds, n)


def share(flags: Sequence[bool], groups: Sequence[str]) -> Metric | None:
    """Computes a share with its 95% interval over groups; None without rows."""
    if not flags:
        return None
    names = groups if len(set(groups)) >= MIN_GROUPS_OF_SHARE else [str(place) for place in range(len(flags))]
    numbered = Groups.of(names)
    return bootstrap(numbered, mean_statistic(numbered, {"share": flags}), kinds=PROPORTION).metrics["share"]


class Decision(StrEnum):
    """What a difference shows, the least favourable first."""

    WORSE = "worse than"
    TOO_FEW = "too few rows to decide"
    LEVEL = "equivalent to"
    BETTER = "better than"


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A metric of a system minus that of another.

    Args:
        scale: What the difference is multiplied by, 100 for points of percent. Of other metrics, such as perplexity,
            no smallest difference of interest is known, so that they never show that systems are equivalent.
    """

    __test__ = False  # pytest: this is not a test

    metric: str
    other: str
    difference: Difference
    scale: float = 100

    @property
    def verdict(self) -> Decision:
        """Decides by the interval, in the direction of the metric."""
        one = self.difference
        if not has_enough_rows(one):
            return Decision.TOO_FEW
        if one.low <= 0 <= one.high:
            is_small = self.scale == 100 and max(-one.low, one.high, 3 / one.num_groups) <= SMALLEST
            return Decision.LEVEL if is_small else Decision.TOO_FEW
        return Decision.BETTER if (one.value > 0) == (one.higher_is_better is not False) else Decision.WORSE

    @property
    def text(self) -> str:
        """Formats the difference: `macro-F1 +3.1 [1.0, 5.2]`."""
        one = self.difference
        value, low, high = (self.scale * number for number in (one.value, one.low, one.high))
        return f"{self.metric} {value:+.1f} [{low:.1f}, {high:.1f}]"


def has_enough_rows(difference: Difference) -> bool:
    """Reports whether an interval is not too rough to decide anything."""
    return difference.n >= MIN_ROWS and difference.num_groups >= MIN_GROUPS


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A verdict and the sentence that states it with its figures."""

    verdict: Decision
    text: str

    def to_dict(self) -> dict[str, str]:
        """Converts to the form of metrics.json."""
        return {"verdict": self.verdict.name.lower(), "text": self.text}


def conclude(name: str, test: Test, *others: Test, title: str = "") -> Conclusion:
    """Concludes from a test, and from others that may not be less favourable.

    Args:
        name: The system that the others are subtracted from.
        title: What the other system of the first test is, such as the strongest simple baseline.
    """
    verdict = min((one.verdict for one in (test, *others)), key=list(Decision).index)
    rows, groups = test.difference.n, test.difference.num_groups
    size = f"{rows:,} rows{f' in {groups:,} groups' if groups != rows else ''}"
    other = f"{test.other}, {title}" if title else test.other
    figures = "; ".join(
        [test.text, *(one.text + f" against {one.other}" * (one.other != test.other) for one in others)]
    )
    if verdict is Decision.TOO_FEW:
        is_rough = not has_enough_rows(test.difference)
        reason = f"at least {MIN_ROWS} rows in {MIN_GROUPS} groups are needed" if is_rough else figures
        return Conclusion(verdict, f"{verdict} whether {name} is better than {other}: {size}; {reason}")
    within = f" within {100 * SMALLEST:.0f} points" if verdict is Decision.LEVEL else ""
    return Conclusion(verdict, f"{name} is {verdict} {other}{within}, on {size}: {figures}")


def read_conclusions(meta: Mapping[str, Any]) -> dict[str, Conclusion]:
    """Reads the conclusions of a run by test set, as `Conclusion.to_dict` writes them."""
    found, sets = {}, meta.get("test_sets")
    for name, facts in sets.items() if isinstance(sets, Mapping) else ():
        stored = facts.get("conclusion") if isinstance(facts, Mapping) else None
        if isinstance(stored, Mapping) and (verdict := str(stored.get("verdict")).upper()) in Decision.__members__:
            found[name] = Conclusion(Decision[verdict], str(stored.get("text")))
    return found
