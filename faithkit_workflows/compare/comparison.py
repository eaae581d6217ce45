"""Compares runs and ranks those of sweeps: computes everything that the terminal and the page show.

The difference of any two systems is tested on their common rows, and corrected for all pairs of runs on all test sets
of a report (faithkit/scores/board.py). The runs of a sweep are ranked by the validation that chose their checkpoints;
test figures are shown and do not rank. Runs that differ only in their seed are one row: the mean over the seeds with
its interval.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.errors import UserError
from faithkit.metrics.classification import Outcomes, evaluate_labels
from faithkit.metrics.responses.measure_responses import defined_means
from faithkit.metrics.span_metrics import join_spans, overall_statistic, span_kinds
from faithkit.pages.page import Fact, gold_label
from faithkit.records import Example
from faithkit.reports.response_report import MAIN_RESPONSE_METRICS
from faithkit.runs.listing import FAILED, MAIN, Chosen, SweepJob, SweepRecord, chosen_of, read_sweep, tested
from faithkit.runs.reading import Run, State, differing_settings, flatten, parts_of
from faithkit.scores.board import Board, Pair, correct_p_values
from faithkit.scores.measures import CLASSIFICATION, is_lower_better, kind_of, kinds_of, response_measures
from faithkit.settings.config_files import SWEEP_FILE
from faithkit.statistics.bootstrap import Evaluation, Groups
from faithkit.statistics.metric import Metric, average_runs
from faithkit.statistics.spread import Values
from faithkit_workflows.compare.test_sets import (
    Slice,
    System,
    TestSet,
    data_name,
    measure_slices_by_system,
    read_facts,
    read_test_sets,
)

SEED = "seed"
# The tested metrics, as they are named in metrics.json after the test set.
LABELS = ("macro_f1", "f1", "precision", "recall", "accuracy", "auroc", "average_precision", "ece", "brier")
SPANS = ("response_by_spans_f1", "char_f1", "char_precision", "char_recall")
PAIR_KINDS = {**CLASSIFICATION, **span_kinds(SPANS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRun:
    """A run of a sweep with its figures.

    Args:
        test: The name and value of the test metric of the same name.
    """

    job: SweepJob
    run: Run
    chosen: Chosen
    test: tuple[str, Metric] | None

    @property
    def settings(self) -> dict[str, str]:
        """The varied settings, by key."""
        return {key.lstrip("+"): value for key, value in self.job.settings.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRow:
    """Runs with the same settings except for the seed, and the mean of their figures.

    Args:
        settings: What differs from other rows.
        runs: The best first.
    """

    settings: Mapping[str, str]
    runs: Sequence[RankedRun]
    validation: Metric
    test: Metric | None

    @property
    def name(self) -> str:
        """The settings in one line."""
        settings = ", ".join(f"{key}={shorten_number(value)}" for key, value in self.settings.items())
        return settings or self.runs[0].run.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The runs that are chosen by one metric, the best first."""

    monitor: str
    is_lower_better: bool
    test_name: str | None
    rows: Sequence[RankedRow]

    @property
    def runs(self) -> list[RankedRun]:
        """All runs of all rows."""
        return [run for row in self.rows for run in row.runs]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedSweep:
    """A sweep with its runs ranked, metric by metric.

    Args:
        notes: What is not ranked, and how to read the figures.
    """

    record: SweepRecord
    rankings: Sequence[Ranking]
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def name(self) -> str:
        """The name of the sweep's folder."""
        return self.record.folder.resolve().name


def shorten_number(value: str) -> str:
    """Shortens a number of many digits, as a search draws it, to four."""
    try:
        return f"{float(value):.4g}" if len(value) > 8 else value
    except ValueError:
        return value


def rank_sweeps(runs: Sequence[Run]) -> tuple[list[RankedSweep], list[str]]:
    """Ranks the given runs of each sweep; also returns messages about records that cannot be read."""
    by_folder: dict[Path, list[Run]] = {}
    for run in runs:
        folder = run.folder.resolve().parent
        if (folder / SWEEP_FILE).is_file():
            by_folder.setdefault(folder, []).append(run)
    sweeps, problems = [], []
    for folder, of_sweep in by_folder.items():
        try:
            sweeps.append(rank_sweep(read_sweep(folder), of_sweep))
        except UserError as error:
            problems.append(f"{folder.name}: {SWEEP_FILE} cannot be read, its runs are not ranked: {error.problem}")
    return sweeps, problems


def rank_sweep(record: SweepRecord, runs: Sequence[Run]) -> RankedSweep:
    """Ranks the finished runs of a sweep, those of each metric separately.

    Args:
        runs: All of the sweep, or some.
    """
    by_monitor: dict[tuple[str, bool], list[RankedRun]] = {}
    notes = []
    for run in runs:
        job, chosen = record.jobs.get(run.folder.resolve().name), chosen_of(run)
        if job is None:
            notes.append(f"{run.name} is in the folder, and none of its jobs: it is not ranked")
        elif run.state == State.FINISHED and chosen is not None and job.ended != FAILED:
            ranked = RankedRun(job=job, run=run, chosen=chosen, test=tested(run, chosen))
            by_monitor.setdefault((chosen.monitor, chosen.is_lower_better), []).append(ranked)
    most_runs_first = sorted(by_monitor.items(), key=lambda item: -len(item[1]))
    rankings = [_rank(*key, of_metric) for key, of_metric in most_runs_first]
    done = {one.job.name for ranking in rankings for one in ranking.runs}
    failed = [job for job in record.jobs.values() if job.ended == FAILED]
    notes += [f"{job.name} failed{f': {job.problem}' if job.problem else ''}" for job in failed]
    missing = [job.name for job in record.jobs.values() if job.ended != FAILED and job.name not in done]
    if missing:
        notes.append(f"{len(missing)} of {len(record.jobs)} jobs have no result here: {', '.join(missing[:3])}")
    if len(rankings) > 1:
        monitors = ", ".join(ranking.monitor for ranking in rankings)
        notes.append(f"jobs are chosen by {len(rankings)} metrics ({monitors}): each is ranked separately")
    if len(done) == 1:
        notes.append("only one run has a result: there is nothing to rank it against")
    if len(done) > 1:
        notes.append(
            f"the best of {len(done)} runs was chosen by its validation figure, which is therefore too good; "
            "test figures were not used for the ranking: use the best run's test figure only once"
        )
    return RankedSweep(record=record, rankings=rankings, notes=notes)


def _rank(monitor: str, is_lower_better: bool, runs: Sequence[RankedRun]) -> Ranking:
    sign = 1 if is_lower_better else -1

    def order(one: RankedRun | RankedRow) -> float:
        return sign * (one.chosen.metric if isinstance(one, RankedRun) else one.validation).value

    def key(one: RankedRun, left_out: str) -> tuple[tuple[str, str], ...]:
        return tuple((name, value) for name, value in one.settings.items() if name != left_out)

    left_out = SEED if len({key(one, SEED) for one in runs}) < len(runs) else ""
    by_settings: dict[tuple[tuple[str, str], ...], list[RankedRun]] = {}
    for one in sorted(runs, key=order):
        by_settings.setdefault(key(one, left_out), []).append(one)
    names = {one.test[0] for one in runs if one.test is not None}
    test_name = names.pop() if len(names) == 1 else None
    rows = []
    for settings, of_row in by_settings.items():
        tests = [one.test[1] for one in of_row if one.test is not None] if test_name else []
        validation, test = of_row[0].chosen.metric, tests[0] if tests else None
        if len(of_row) > 1:
            validation = average_runs([one.chosen.metric.value for one in of_row], kind=kind_of(monitor))
            test = None
            if test_name and len(tests) == len(of_row):
                test = average_runs([one.value for one in tests], kind=kind_of(test_name))
        rows.append(RankedRow(settings=dict(settings), runs=of_row, validation=validation, test=test))
    rows.sort(key=order)
    return Ranking(monitor=monitor, is_lower_better=is_lower_better, test_name=test_name, rows=rows)


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
    kinds = kinds_of(response_measures())
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
            else:  # what was measured of each response, on the rows that both have
                tables = [system.measured for system in both]
                ids = [id_ for id_ in test_set.examples if all(id_ in table for table in tables)]
                groups = Groups.of(test_set.examples[id_].group for id_ in ids)
                columns: list[dict[str, Values]] = [{}, {}]
                for name in kinds:
                    values = np.array([[table[id_].get(name) for id_ in ids] for table in tables], np.float64)
                    shared = np.isfinite(values).all(axis=0)
                    if shared.any():
                        for column, row in zip(columns, values, strict=True):
                            column[name] = np.where(shared, row, np.nan)
                for name, column in zip(names, columns, strict=True):
                    if column:
                        statistic = defined_means(groups, column)
                        board.add(name, Evaluation(groups=groups, statistic=statistic, kinds=kinds))
            if board.systems:
                pairs.append(board.pair(*names))
            elif any(gold_label(example) is not None for example in test_set.examples.values()):
                problems.append(f"{test_set.name}: {' and '.join(names)} have no labelled row in common")
    correct_p_values(pairs)
    return pairs, problems


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
        facts: The fields that rows can be grouped by.
        outcomes: By system, on all rows that it has judged; without a system that has judged none.
    """

    test_set: TestSet
    systems: Sequence[System]
    facts: Sequence[Fact]
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
    sets, places = [], {run.name: place for place, run in enumerate(runs)}
    for test_set in test_sets:
        if not test_set.systems:
            continue
        of_runs = metrics.get(f"test/{test_set.name}", {})
        # By the first main metric that one of them has; systems without it come last.
        measured = [of_runs.get(places[system.run.name], {}) for system in test_set.systems]
        main = next((name for name in MAIN if any(name in one for one in measured)), "")
        sign = 1 if is_lower_better(main) else -1
        values = [sign * one[main].value if main in one else np.inf for one in measured]
        best = [test_set.systems[place] for place in sorted(range(len(values)), key=values.__getitem__)]
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
