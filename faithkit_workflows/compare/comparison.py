"""Compares runs: computes everything that the terminal and the page show.

The difference of any two systems is tested on their common rows, and corrected for all pairs of runs on all test sets
of a report (faithkit/scores/board.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from faithkit.errors import UserError
from faithkit.metrics.classification import evaluate_labels
from faithkit.metrics.outcomes import Outcomes
from faithkit.metrics.responses.response_columns import defined_means
from faithkit.metrics.span_metrics import join_spans, overall_statistic, span_kinds
from faithkit.records import Example
from faithkit.reports.response_report import MAIN_RESPONSE_METRICS
from faithkit.runs.listing import MAIN
from faithkit.runs.reading import Run, differing_settings, flatten, parts_of
from faithkit.scores.board import Board, Pair, correct_p_values
from faithkit.scores.measures import CLASSIFICATION, is_lower_better, kinds_of, response_measures
from faithkit.statistics.bootstrap import Evaluation, Groups
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import Values
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


def main_metric(pair: Pair) -> str:
    """Returns the metric that decides: a tagger's characters, or labels, or else what was measured of responses."""
    first = ("char_f1", *LABELS, *MAIN_RESPONSE_METRICS)
    return next(name for name in (*first, *pair.differences) if name in pair.differences)


def compare_pairs(
    test_sets: Iterable[tuple[TestSet, Sequence[System]]], *, num_resamples: int = 1000
) -> tuple[list[Pair], list[str]]:
    """Compares every two systems of each test set; also returns messages about what could not be compared."""
    pairs: list[Pair] = []
    problems: list[str] = []
    for test_set, systems in test_sets:
        boards: dict[frozenset[str], Board] = {}  # of rows, which several pairs may have in common
        for both in combinations(systems, 2):
            names = [system.name for system in both]
            rows = test_set.select_judged(*both)
            board = Board(test_set.name, num_resamples=num_resamples)
            if rows:
                board = boards.setdefault(frozenset(example.id for example in rows), board)
                for system in both:
                    if system.name not in board.systems:
                        measured, problem = _measure(system, rows)
                        problems += [f"{test_set.name}: {problem}"] * bool(problem)
                        board.add(system.name, measured)
            else:
                for name, measured in zip(names, _measure_responses(test_set, both), strict=False):
                    board.add(name, measured)
            if board.systems:
                pairs.append(board.pair(*names))
            elif test_set.is_labelled:
                problems.append(f"{test_set.name}: {' and '.join(names)} have no labelled row in common")
    correct_p_values(pairs)
    return pairs, problems


def _measure_responses(test_set: TestSet, systems: Sequence[System]) -> list[Evaluation]:
    """Collects what was measured of each response on the rows that both systems have; empty without such rows."""
    tables = [system.measured for system in systems]
    ids = [id_ for id_ in test_set.examples if all(id_ in table for table in tables)]
    columns: list[dict[str, Values]] = [{}, {}]
    kinds = kinds_of(response_measures())
    for name in kinds:
        values = np.array([[table[id_].get(name) for id_ in ids] for table in tables], np.float64)
        shared = np.isfinite(values).all(axis=0)
        if shared.any():
            for column, row in zip(columns, values, strict=True):
                column[name] = np.where(shared, row, np.nan)
    if not columns[0]:
        return []
    groups = Groups.of(test_set.examples[id_].group for id_ in ids)
    return [Evaluation(groups=groups, statistic=defined_means(groups, each), kinds=kinds) for each in columns]


def _measure(system: System, rows: Sequence[Example]) -> tuple[Evaluation, str]:
    """Measures a system's labels and, where it marks any, its spans; also returns why it has no span metrics."""
    predictions = {example.id: system.predictions[example.id] for example in rows}
    labels = evaluate_labels(system.join(rows))
    statistics, names, problem = [labels.statistic], list(LABELS), ""
    if all(example.spans is not None for example in rows) and any(one.spans for one in predictions.values()):
        try:
            statistics.append(overall_statistic(join_spans(rows, predictions)))
            names += SPANS
        except UserError as error:
            problem = f"{system.name} has no span metrics: {error.problem}"

    def values(weights: Values) -> Mapping[str, Values]:
        found = {name: value for one in statistics for name, value in one(weights).items()}
        return {name: found[name] for name in names if name in found}

    return replace(labels, statistic=values, kinds=PAIR_KINDS), problem


MISSING = "–"


@dataclass(frozen=True, slots=True)
class ComparedSet:
    """A test set with the systems that are compared on it.

    Args:
        systems: The compared systems, the best first.
        facts: The fields that rows can be grouped by: for each field the values by row id.
        outcomes: By system, on all rows that it has judged; without a system that has judged none.
    """

    test_set: TestSet
    systems: Sequence[System]
    facts: Mapping[str, Mapping[str, str]]
    slices: Sequence[Slice]
    outcomes: Mapping[str, Outcomes]


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
    by_part: dict[str, dict[int, dict[str, Metric]]] = {}
    for place, run in enumerate(runs):
        for name, metric in run.metrics.items():
            split, dataset, rest = parts_of(name)
            *inner, short = rest.split("/")
            part = "/".join([split, data_name(run, dataset), *inner])
            by_part.setdefault(part, {}).setdefault(place, {})[short] = metric
    # Whole sets come before their parts.
    metrics = dict(sorted(by_part.items(), key=lambda item: (item[0].count("/") > 1, -len(item[1]), item[0])))
    sets = []
    for test_set in test_sets:
        if not test_set.systems:
            continue
        of_runs = metrics.get(f"test/{test_set.name}", {})
        best = _best_first(test_set, {run.name: of_runs.get(place, {}) for place, run in enumerate(runs)})
        if len(best) > num_compared:
            left_out = len(best) - num_compared
            problems.append(f"{test_set.name}: the best {num_compared} of {len(best)} are compared, {left_out} are not")
        facts, systems = read_facts(test_set), best[:num_compared]
        judged = {one.name: (rows, one.join(rows)) for one in systems if (rows := test_set.select_judged(one))}
        slices = measure_slices_by_system(test_set, judged, facts, num_resamples=num_resamples) if judged else []
        outcomes = {name: joined for name, (_, joined) in judged.items()}
        sets.append(ComparedSet(test_set=test_set, systems=systems, facts=facts, slices=slices, outcomes=outcomes))
    sweeps, unread = rank_sweeps(runs)
    pairs, unpaired = compare_pairs([(one.test_set, one.systems) for one in sets], num_resamples=num_resamples)
    flat = [dict(flatten(run.config)) for run in runs]
    return Comparison(
        runs=runs,
        settings={
            key: [_format(one[key]) if key in one else MISSING for one in flat] for key in differing_settings(runs)
        },
        metrics=metrics,
        sets=sets,
        pairs=pairs,
        problems=[*problems, *unread, *unpaired],
        sweeps=sweeps,
    )


def _format(value: Any) -> str:
    """Formats a setting as on the command line."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_format(one)}' for key, one in value.items())}}}"
    return str(value)


def _best_first(test_set: TestSet, metrics: Mapping[str, Mapping[str, Metric]]) -> list[System]:
    """Sorts systems by the first main metric that one of them has; systems without it come last.

    Args:
        metrics: Those of the test set by run.
    """
    known = {name for system in test_set.systems for name in metrics[system.run.name]}
    main = next((name for name in MAIN if name in known), "")
    sign = 1 if is_lower_better(main) else -1

    def key(system: System) -> float:
        found = metrics[system.run.name].get(main)
        return np.inf if found is None else sign * found.value

    return sorted(test_set.systems, key=key)
