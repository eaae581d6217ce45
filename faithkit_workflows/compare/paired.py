"""Tests the difference of any two systems on their common rows: bootstrap over groups, and McNemar's test.

The bootstrap resamples whole dialogues or documents (faithkit/statistics/bootstrap.py) and tests every metric.
McNemar's test is an exact test on the rows where only one system is right. It assumes independent rows, so with many
rows in a dialogue its p is too small. Both are corrected by Holm's procedure (Holm 1979) for all
pairs of runs on all test sets of a report, metric by metric: of all findings at the 5% level, the chance that any is
false stays below 5%.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError
from faithkit.metrics.classification import classification_statistic
from faithkit.metrics.outcomes import join_outcomes
from faithkit.metrics.span_metrics import join_spans, overall_statistic
from faithkit.records import Example
from faithkit.statistics.bootstrap import Difference, Groups, Resamples, resample
from faithkit.statistics.spread import Statistic, Values
from faithkit_workflows.compare.test_sets import System, TestSet

# The tested metrics, as they are named in metrics.json after the test set.
LABELS = ("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "average_precision", "ece", "brier")
SPANS = ("response_by_spans_f1", "char_f1", "char_precision", "char_recall")


@dataclass(slots=True)
class McNemar:
    """The rows where only one of two systems is right, and the exact two-sided p."""

    first_alone: int
    second_alone: int
    p_value: float
    corrected: float = 1.0


@dataclass(slots=True)
class Pair:
    """Two systems on the rows of a test set that both have judged.

    Args:
        differences: The first minus the second, by metric.
        corrected: Their p-values, corrected by Holm.
    """

    test_set: str
    first: str
    second: str
    num_rows: int
    num_groups: int
    differences: dict[str, Difference]
    mcnemar: McNemar
    corrected: dict[str, float] = field(default_factory=dict)


def compare_pairs(
    test_sets: Iterable[tuple[TestSet, Sequence[System]]], *, num_resamples: int = 1000
) -> tuple[list[Pair], list[str]]:
    """Compares every two systems of each test set; also returns messages about what could not be compared."""
    pairs: list[Pair] = []
    problems: list[str] = []
    for test_set, systems in test_sets:
        drawn: dict[tuple[str, frozenset[str]], Resamples] = {}  # of a system on rows, which pairs share
        for both in combinations(systems, 2):
            rows = test_set.select_judged(*both)
            if not rows:
                if test_set.is_labelled:
                    names = " and ".join(system.name for system in both)
                    problems.append(f"{test_set.name}: {names} have no labelled row in common")
                continue
            ids = frozenset(example.id for example in rows)
            for system in both:
                if (system.name, ids) not in drawn:
                    statistic, problem = _make_statistic(system, rows)
                    problems += [f"{test_set.name}: {problem}"] * bool(problem)
                    groups = Groups.of(example.group for example in rows)
                    drawn[system.name, ids] = resample(groups, statistic, num_resamples=num_resamples)
            first, second = both
            pairs.append(
                Pair(
                    test_set=test_set.name,
                    first=first.name,
                    second=second.name,
                    num_rows=len(rows),
                    num_groups=len({example.group for example in rows}),
                    differences=drawn[first.name, ids].subtract(drawn[second.name, ids]),
                    mcnemar=mcnemar_test(_right(rows, first), _right(rows, second)),
                )
            )
    correct_p_values(pairs)
    return pairs, problems


def _make_statistic(system: System, rows: Sequence[Example]) -> tuple[Statistic, str]:
    """Makes the statistic of a system's labels and, where it marks any, of its spans; also returns why it has none."""
    predictions = {example.id: system.predictions[example.id] for example in rows}
    statistics, names, problem = [classification_statistic(join_outcomes(rows, predictions))], list(LABELS), ""
    if all(example.spans is not None for example in rows) and any(one.spans for one in predictions.values()):
        try:
            statistics.append(overall_statistic(join_spans(rows, predictions)))
            names += SPANS
        except UserError as error:
            problem = f"{system.name} has no span metrics: {error.problem}"

    def values(weights: Values) -> Mapping[str, Values]:
        found = {name: value for one in statistics for name, value in one(weights).items()}
        return {name: found[name] for name in names if name in found}

    return values, problem


def mcnemar_test(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> McNemar:
    """Tests whether two systems are right equally often, by the rows where only one is right."""
    from scipy.stats import binomtest

    first_alone, second_alone = int((first & ~second).sum()), int((~first & second).sum())
    num_rows = first_alone + second_alone
    p_value = float(binomtest(first_alone, num_rows).pvalue) if num_rows else 1.0
    return McNemar(first_alone, second_alone, p_value)


def correct_p_values(pairs: Sequence[Pair]) -> None:
    """Corrects the p-values of all pairs by Holm, separately for each metric and for McNemar's test."""
    for name in dict.fromkeys(name for pair in pairs for name in pair.differences):
        having = [pair for pair in pairs if name in pair.differences]
        corrected = _holm([pair.differences[name].p_value for pair in having])
        for pair, value in zip(having, corrected, strict=True):
            pair.corrected[name] = value
    for pair, value in zip(pairs, _holm([pair.mcnemar.p_value for pair in pairs]), strict=True):
        pair.mcnemar.corrected = value


def _holm(p_values: Sequence[float]) -> list[float]:
    """Corrects p-values: the smallest of n is multiplied by n, the next by n - 1, and so on; their order is kept."""
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(np.asarray(p_values)[order] * factors), 1.0)
    found: list[float] = corrected.tolist()
    return found


def _right(rows: Sequence[Example], system: System) -> NDArray[np.bool_]:
    return np.array([system.predictions[example.id].label == example.label for example in rows])
