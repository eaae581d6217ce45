"""Compares the systems of one test set: metrics with intervals, paired tests, the strongest baseline, conclusions.

Every system is measured on the same resamples of groups, drawn once. So the difference of any two costs next to nothing
and is paired (Koehn 2004). McNemar's test is an exact test on the rows where only one of two systems is right; it
assumes independent rows, so with many rows in a group its p is too small. Holm's procedure (Holm 1979) corrects both
tests for all pairs, metric by metric: of all findings at the 5% level, the chance that any is false stays below 5%.

>>> from dataclasses import replace
>>> from faithkit.metrics.classification import evaluate_labels
>>> from faithkit.metrics.classification import Outcomes
>>> from faithkit.statistics.bootstrap import Groups
>>> gold = np.array([0, 1] * 20, np.int8)
>>> rows = Outcomes(gold=gold, called=gold, scores=np.full(40, np.nan), groups=Groups(np.arange(40), 40))
>>> board = Board(num_resamples=100)
>>> board.add("model", evaluate_labels(rows))
>>> board.add("faithful", evaluate_labels(replace(rows, called=0 * gold)), title="always faithful", is_baseline=True)
>>> board.metrics("model")["accuracy"].value, round(board.subtract("model", "faithful")["accuracy"].value, 2)
(1.0, 0.5)
>>> board.conclude("model", {"accuracy": "accuracy"}).text[:36]
'model is better than always faithful'
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import exp, fsum, lgamma, log

import numpy as np
from numpy.typing import NDArray

from faithkit.scores.measures import PERCENT, measure_of
from faithkit.statistics.bootstrap import (
    Conclusion,
    Difference,
    Evaluation,
    Resamples,
    ScoredMetrics,
    Test,
    conclude,
)
from faithkit.statistics.metric import Metric


@dataclass(slots=True)
class McNemar:
    """The rows where only one of two systems is right, and the exact two-sided p."""

    first_alone: int
    second_alone: int
    p_value: float
    corrected: float = 1.0


@dataclass(slots=True)
class Pair:
    """Two systems on the rows that both have.

    Args:
        differences: The first minus the second, by metric.
        mcnemar: None for what no label judges, such as generated responses.
        corrected: The p-values of the differences, corrected by Holm.
    """

    test_set: str
    first: str
    second: str
    num_rows: int
    num_groups: int
    differences: dict[str, Difference]
    mcnemar: McNemar | None
    corrected: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _System:
    measured: Evaluation
    drawn: Resamples
    title: str
    is_baseline: bool

    @cached_property
    def scored(self) -> ScoredMetrics:
        return self.drawn.metrics(self.measured.kinds, self.measured.n)


class Board:
    """The systems that are measured on the same rows.

    Args:
        name: The test set.
    """

    def __init__(self, name: str = "", *, num_resamples: int = 1000, seed: int = 0):
        self.name, self._options = name, {"num_resamples": num_resamples, "seed": seed}
        self._systems: dict[str, _System] = {}

    def add(self, system: str, measured: Evaluation, *, title: str = "", is_baseline: bool = False) -> None:
        """Measures a system.

        Args:
            title: Its name in sentences; empty for its name.
            is_baseline: `strongest` and `conclude` compare with it.
        """
        drawn = Resamples(measured.groups, measured.statistic, **self._options)
        self._systems[system] = _System(measured, drawn, title or system, is_baseline)

    @property
    def systems(self) -> list[str]:
        """The names of the systems, in the order in which they were added."""
        return list(self._systems)

    def metrics(self, system: str) -> dict[str, Metric]:
        """Returns the metrics of a system with 95% intervals."""
        return self._systems[system].scored.metrics

    def notes(self, *systems: str) -> tuple[str, ...]:
        """Lists what is uncertain about the figures of systems, each note once."""
        chosen = [self._systems[system] for system in systems or self._systems]
        return tuple(dict.fromkeys(note for one in chosen for note in (*one.measured.notes, *one.scored.notes)))

    def resamples(self, system: str) -> Resamples:
        """Returns the resampled metrics of a system, for means over several boards."""
        return self._systems[system].drawn

    def subtract(self, first: str, second: str, metrics: Sequence[str] = ()) -> dict[str, Difference]:
        """Subtracts the metrics of the second system from those of the first.

        Args:
            metrics: Those to subtract; empty for all that both have.
        """
        one, other = self._systems[first], self._systems[second]
        return one.drawn.subtract(other.drawn, one.measured.kinds, metrics)

    def pair(self, first: str, second: str) -> Pair:
        """Compares two systems by both tests."""
        right, other = (self._systems[system].measured.right for system in (first, second))
        drawn = self._systems[first].drawn
        mcnemar = None if right is None or other is None else mcnemar_test(right, other)
        differences = self.subtract(first, second)
        return Pair(self.name, first, second, drawn.num_rows, drawn.num_groups, differences, mcnemar)

    def pairs(self, systems: Iterable[str]) -> list[Pair]:
        """Compares every two systems; p-values are corrected for all of these pairs."""
        pairs = [self.pair(*both) for both in combinations(systems, 2)]
        correct_p_values(pairs)
        return pairs

    def strongest(self, metric: str) -> str | None:
        """Finds the baseline with the highest value of a metric; None if no baseline has it."""
        values = {
            name: one.scored.metrics[metric].value
            for name, one in self._systems.items()
            if one.is_baseline and metric in one.scored.metrics
        }
        return max(values, key=lambda name: values[name], default=None)

    def conclude(self, system: str, metrics: Mapping[str, str]) -> Conclusion | None:
        """Concludes whether a system is better than the strongest baseline by every one of some metrics.

        Args:
            metrics: With their titles; the strongest baseline may differ by metric.

        Returns:
            None if no difference is defined.
        """
        tests = []
        for metric, title in metrics.items():
            other = self.strongest(metric)
            if other is not None and (difference := self.subtract(system, other, [metric]).get(metric)) is not None:
                tests.append(Test(metric=title, other=self._systems[other].title, difference=difference))
        return conclude(self._systems[system].title, *tests, title="the strongest simple baseline") if tests else None


def conclude_by(metric: str, first: str, second: str, difference: Difference) -> Conclusion:
    """Concludes whether the first system is better by a metric, with the title and the scale of its measure."""
    measure = measure_of(metric)
    title, scale = (measure.title, measure.scale) if measure else (metric, PERCENT)
    return conclude(first, Test(metric=title, other=second, difference=difference, scale=scale))


def mcnemar_test(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> McNemar:
    """Tests whether two systems are right equally often, by the rows where only one is right."""
    first_alone, second_alone = int((first & ~second).sum()), int((~first & second).sum())
    num_rows = first_alone + second_alone
    fewer = min(first_alone, second_alone)
    log_ways = lgamma(num_rows + 1) - num_rows * log(2)  # both are equally probable, so twice a tail is exact
    tail = fsum(exp(log_ways - lgamma(k + 1) - lgamma(num_rows - k + 1)) for k in range(fewer + 1))
    return McNemar(first_alone, second_alone, min(1.0, 2 * tail))


def correct_p_values(pairs: Sequence[Pair]) -> None:
    """Corrects the p-values of all pairs by Holm, separately for each metric and for McNemar's test."""
    for name in dict.fromkeys(name for pair in pairs for name in pair.differences):
        having = [pair for pair in pairs if name in pair.differences]
        corrected = correct_by_holm([pair.differences[name].p_value for pair in having])
        for pair, value in zip(having, corrected, strict=True):
            pair.corrected[name] = value
    tests = [pair.mcnemar for pair in pairs if pair.mcnemar is not None]
    for test, value in zip(tests, correct_by_holm([test.p_value for test in tests]), strict=True):
        test.corrected = value


def correct_by_holm(p_values: Sequence[float]) -> list[float]:
    """Corrects p-values: the smallest of n is multiplied by n, the next by n - 1, and so on; their order is kept."""
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(np.asarray(p_values)[order] * factors), 1.0)
    found: list[float] = corrected.tolist()
    return found
