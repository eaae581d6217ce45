"""Compares runs: computes everything that the terminal and the page show.

The difference of any two systems is tested on their common rows. The bootstrap resamples whole dialogues or documents
(faithkit/statistics/bootstrap.py) and tests every metric. McNemar's test is an exact test on the rows where only one
system is right. It assumes independent rows, so with many rows in a dialogue its p is too small. Both are corrected by
Holm's procedure (Holm 1979) for all pairs of runs on all test sets of a report, metric by metric: of all findings at
the 5% level, the chance that any is false stays below 5%.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import exp, fsum, lgamma, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError
from faithkit.metrics.classification import classification_statistic
from faithkit.metrics.declared_kinds import is_lower_better
from faithkit.metrics.outcomes import join_outcomes
from faithkit.metrics.responses.response_columns import ResponseMetric, defined_means, response_metrics
from faithkit.metrics.span_metrics import join_spans, overall_statistic, span_kinds
from faithkit.records import Example
from faithkit.reports.response_report import MAIN_RESPONSE_METRICS
from faithkit.runs.listing import MAIN
from faithkit.runs.run import Run, differing_settings, flatten, parts_of
from faithkit.statistics.bootstrap import Difference, Groups, Resamples, paired_difference, resample
from faithkit.statistics.conclusion import Conclusion, Test, conclude
from faithkit.statistics.metric import ACCURACY, CLASSIFICATION, Metric
from faithkit.statistics.spread import Statistic, Values
from faithkit_workflows.compare.sweep_ranking import RankedSweep, rank_sweeps
from faithkit_workflows.compare.test_sets import (
    Slice,
    System,
    TestSet,
    data_name,
    measure_slices_by_system,
    read_facts,
    read_test_sets,
)

# The tested metrics, as they are named in metrics.json after the test set.
LABELS = ("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "average_precision", "ece", "brier")
SPANS = ("response_by_spans_f1", "char_f1", "char_precision", "char_recall")
PAIR_KINDS = {**CLASSIFICATION, **span_kinds(SPANS)}


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
        mcnemar: None for generated responses, which no label judges.
        corrected: Their p-values, corrected by Holm.
    """

    test_set: str
    first: str
    second: str
    num_rows: int
    num_groups: int
    differences: dict[str, Difference]
    mcnemar: McNemar | None
    corrected: dict[str, float] = field(default_factory=dict)

    @property
    def main_metric(self) -> str:
        """The metric that decides: a tagger's characters, or else labels, or else what was measured of responses."""
        first = ("char_f1", *LABELS, *MAIN_RESPONSE_METRICS)
        return next(name for name in (*first, *self.differences) if name in self.differences)

    def conclude(self) -> Conclusion:
        """Concludes in words which system is better."""
        name = self.main_metric
        shown, difference = response_metrics().get(name, ResponseMetric(name, ACCURACY)), self.differences[name]
        return conclude(
            self.first, Test(metric=shown.title, other=self.second, difference=difference, scale=shown.scale)
        )


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
            if not rows and (pair := _compare_responses(test_set, *both, num_resamples)):
                pairs.append(pair)
            elif not rows and test_set.is_labelled:
                names = " and ".join(system.name for system in both)
                problems.append(f"{test_set.name}: {names} have no labelled row in common")
            if not rows:
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
                    differences=drawn[first.name, ids].subtract(drawn[second.name, ids], PAIR_KINDS),
                    mcnemar=mcnemar_test(_right(rows, first), _right(rows, second)),
                )
            )
    correct_p_values(pairs)
    return pairs, problems


def _compare_responses(test_set: TestSet, first: System, second: System, num_resamples: int) -> Pair | None:
    """Compares what was measured of each response on the rows that both systems have; None without such rows."""
    tables = [system.measured for system in (first, second)]
    ids = [id_ for id_ in test_set.examples if all(id_ in table for table in tables)]
    columns: list[dict[str, Values]] = [{}, {}]
    kinds = {name: metric.kind for name, metric in response_metrics().items()}
    for name in kinds:
        values = np.array([[table[id_].get(name) for id_ in ids] for table in tables], np.float64)
        shared = np.isfinite(values).all(axis=0)
        if shared.any():
            for column, row in zip(columns, values, strict=True):
                column[name] = np.where(shared, row, np.nan)
    if not columns[0]:
        return None
    groups = Groups.of(test_set.examples[id_].group for id_ in ids)
    statistics = [defined_means(groups, each) for each in columns]
    differences = paired_difference(groups, *statistics, kinds=kinds, num_resamples=num_resamples)
    return Pair(test_set.name, first.name, second.name, len(ids), groups.count, differences, None)


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
    first_alone, second_alone = int((first & ~second).sum()), int((~first & second).sum())
    num_rows = first_alone + second_alone
    fewer = min(first_alone, second_alone)
    log_ways = lgamma(num_rows + 1) - num_rows * log(2)  # both are equally probable, so twice a tail is exact
    tail = fsum(exp(log_ways - lgamma(k + 1) - lgamma(num_rows - k + 1)) for k in range(fewer + 1))
    p_value = min(1.0, 2 * tail)
    return McNemar(first_alone, second_alone, p_value)


def correct_p_values(pairs: Sequence[Pair]) -> None:
    """Corrects the p-values of all pairs by Holm, separately for each metric and for McNemar's test."""
    for name in dict.fromkeys(name for pair in pairs for name in pair.differences):
        having = [pair for pair in pairs if name in pair.differences]
        corrected = _holm([pair.differences[name].p_value for pair in having])
        for pair, value in zip(having, corrected, strict=True):
            pair.corrected[name] = value
    tests = [pair.mcnemar for pair in pairs if pair.mcnemar is not None]
    for test, value in zip(tests, _holm([test.p_value for test in tests]), strict=True):
        test.corrected = value


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


MISSING = "–"
ConfusionMatrix = NDArray[np.int64]  # gold (faithful, hallucinated) x called (faithful, hallucinated, unparsed)


@dataclass(frozen=True, slots=True)
class ComparedSet:
    """A test set with the systems that are compared on it.

    Args:
        systems: The compared systems, the best first.
        facts: The fields that rows can be grouped by: for each field the values by row id.
        confusions: By system, on all rows that it has judged.
    """

    test_set: TestSet
    systems: Sequence[System]
    facts: Mapping[str, Mapping[str, str]]
    slices: Sequence[Slice]
    confusions: Mapping[str, ConfusionMatrix]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of runs.

    Args:
        settings: The keys with different values, and the value of each run.
        metrics: By the part of a metric's name before the last, `test/begin` or `test/begin/task/qa`, the metrics of
            each run, by its place among the runs.
        pairs: Every two systems of each test set.
        problems: What could not be read or compared.
        sweeps: The sweeps of the runs.
    """

    runs: Sequence[Run]
    settings: Mapping[str, Sequence[str]]
    metrics: Mapping[str, Mapping[int, Mapping[str, Metric]]]
    sets: Sequence[ComparedSet]
    pairs: Sequence[Pair]
    problems: Sequence[str]
    sweeps: Sequence[RankedSweep] = ()


def compare_runs(runs: Sequence[Run], *, num_compared: int = 20, num_resamples: int = 1000) -> Comparison:
    """Compares runs; what cannot be read or compared is listed among the problems.

    Args:
        runs: Runs with unique names.
        num_compared: How many systems of a test set are compared row by row: the best by their main metric.
    """
    problems = [f"{run.name}: {problem}" for run in runs for problem in run.problems]
    test_sets = [one for one in read_test_sets(runs) if one.systems or one.problems]
    problems += [f"{one.name}: {problem}" for one in test_sets for problem in one.problems]
    sets = []
    for test_set in test_sets:
        if not test_set.systems:
            continue
        best = _best_first(test_set)
        if len(best) > num_compared:
            left_out = len(best) - num_compared
            problems.append(f"{test_set.name}: the best {num_compared} of {len(best)} are compared, {left_out} are not")
        sets.append(_compare_on_set(test_set, best[:num_compared], num_resamples))
    sweeps, unread = rank_sweeps(runs)
    pairs, unpaired = compare_pairs([(one.test_set, one.systems) for one in sets], num_resamples=num_resamples)
    return Comparison(
        runs=runs,
        settings=find_different_settings(runs),
        metrics=group_metrics(runs),
        sets=sets,
        pairs=pairs,
        problems=[*problems, *unread, *unpaired],
        sweeps=sweeps,
    )


def find_different_settings(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Finds the keys with different values, and formats the value of each run as on the command line."""
    flat = [dict(flatten(run.config)) for run in runs]
    return {key: [_format(one[key]) if key in one else MISSING for one in flat] for key in differing_settings(runs)}


def _format(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_format(one)}' for key, one in value.items())}}}"
    return str(value)


def group_metrics(runs: Sequence[Run]) -> dict[str, dict[int, dict[str, Metric]]]:
    """Groups metrics by test set and part of it, whole sets before their parts."""
    found: dict[str, dict[int, dict[str, Metric]]] = {}
    for place, run in enumerate(runs):
        for name, metric in run.metrics.items():
            split, dataset, rest = parts_of(name)
            *inner, short = rest.split("/")
            part = "/".join([split, data_name(run, dataset), *inner])
            found.setdefault(part, {}).setdefault(place, {})[short] = metric
    return dict(sorted(found.items(), key=lambda item: (item[0].count("/") > 1, -len(item[1]), item[0])))


def _compare_on_set(test_set: TestSet, systems: Sequence[System], num_resamples: int) -> ComparedSet:
    facts = read_facts(test_set)
    labelled = [system for system in systems if test_set.select_judged(system)]
    return ComparedSet(
        test_set=test_set,
        systems=systems,
        facts=facts,
        slices=measure_slices_by_system(test_set, labelled, facts, num_resamples=num_resamples) if labelled else [],
        confusions={system.name: count_confusions(test_set, system) for system in labelled},
    )


def count_confusions(test_set: TestSet, system: System) -> ConfusionMatrix:
    """Counts gold labels against predicted ones on the rows that a system has judged."""
    rows = test_set.select_judged(system)
    outcomes = join_outcomes(rows, {example.id: system.predictions[example.id] for example in rows})
    counts = np.bincount(outcomes.gold.astype(np.intp) * 3 + outcomes.called, minlength=6)
    return counts.reshape(2, 3)


def _best_first(test_set: TestSet) -> list[System]:
    """Sorts systems by the first main metric that one of them has; systems without it come last."""
    metrics = [_test_metrics(system.run, test_set.name) for system in test_set.systems]
    main = next((name for name in MAIN if any(name in of_system for of_system in metrics)), "")
    sign = 1 if is_lower_better(main) else -1

    def key(item: tuple[System, Mapping[str, Metric]]) -> float:
        return sign * item[1][main].value if main in item[1] else np.inf

    return [system for system, _ in sorted(zip(test_set.systems, metrics, strict=True), key=key)]


def _test_metrics(run: Run, test_set: str) -> dict[str, Metric]:
    parts = {full: parts_of(full) for full in run.metrics}
    return {
        short: run.metrics[full]
        for full, (split, dataset, short) in parts.items()
        if split == "test" and data_name(run, dataset) == test_set
    }
