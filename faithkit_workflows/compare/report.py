"""The comparison of runs: everything that the terminal and the page show, worked out once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from faithkit.metrics.outcomes import join_outcomes
from faithkit.runs.listing import MAIN
from faithkit.runs.run import Run, parts_of
from faithkit.statistics.metric import Metric
from faithkit_workflows.compare.paired import Pair, compare_all
from faithkit_workflows.compare.settings import settings_that_differ
from faithkit_workflows.compare.slices import Slice, facts_of, slice_metrics
from faithkit_workflows.compare.sweep_report import SweepReport, report_sweeps
from faithkit_workflows.compare.test_sets import System, TestSet, data_name, read_test_sets

LOWER_IS_BETTER = ("critic_rate", "hallucination_rate", "rate", "perplexity", "loss")
Table = NDArray[np.int64]  # gold (faithful, hallucinated) x called (faithful, hallucinated, unparsed)


@dataclass(frozen=True, slots=True)
class ComparedSet:
    """A test set with the systems that are compared on it.

    Args:
        systems: Those compared, the best first.
        facts: What the rows are told apart by: of each field the values by id.
        confusions: By system, on all rows that it has judged.
    """

    test_set: TestSet
    systems: Sequence[System]
    facts: Mapping[str, Mapping[str, str]]
    slices: Sequence[Slice]
    confusions: Mapping[str, Table]


@dataclass(frozen=True, slots=True)
class RunReport:
    """The comparison of runs.

    Args:
        settings: The keys whose values differ, with the value of each run.
        metrics: By what stands before the last name of a metric, `test/begin` or `test/begin/task/qa`, the metrics of
            each run, by its place among the runs.
        pairs: Every two systems of each test set.
        problems: Sentences on what could not be read or compared.
        sweeps: Those that runs come from.
    """

    runs: Sequence[Run]
    settings: Mapping[str, Sequence[str]]
    metrics: Mapping[str, Mapping[int, Mapping[str, Metric]]]
    sets: Sequence[ComparedSet]
    pairs: Sequence[Pair]
    problems: Sequence[str]
    sweeps: Sequence[SweepReport] = ()


def told_apart(runs: Sequence[Run]) -> list[Run]:
    """Calls runs whose folders have the same name by their whole path."""
    count = Counter(run.name for run in runs)
    return [run if count[run.name] == 1 else replace(run, name=str(run.folder)) for run in runs]


def compare_runs(runs: Sequence[Run], *, num_compared: int = 20, num_resamples: int = 1000) -> RunReport:
    """Compares runs; what cannot be read or compared is told, and the rest is there.

    Args:
        runs: Each of another name.
        num_compared: Systems of a test set that are compared row by row: the best by their main metric.
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
            left = len(best) - num_compared
            problems.append(f"{test_set.name}: the best {num_compared} of {len(best)} are compared, {left} are not")
        sets.append(_compared(test_set, best[:num_compared], num_resamples))
    sweeps, unread = report_sweeps(runs)
    told = [(one.test_set, one.systems) for one in sets]
    pairs, unpaired = compare_all(told, num_resamples=num_resamples)
    return RunReport(
        runs=runs,
        settings=settings_that_differ(runs),
        metrics=metrics_by_part(runs),
        sets=sets,
        pairs=pairs,
        problems=[*problems, *unread, *unpaired],
        sweeps=sweeps,
    )


def metrics_by_part(runs: Sequence[Run]) -> dict[str, dict[int, dict[str, Metric]]]:
    """Groups metrics by test set and part of it, the whole sets before their parts."""
    found: dict[str, dict[int, dict[str, Metric]]] = {}
    for place, run in enumerate(runs):
        for name, metric in run.metrics.items():
            split, dataset, rest = parts_of(name)
            *inner, short = rest.split("/")
            part = "/".join([split, data_name(run, dataset), *inner])
            found.setdefault(part, {}).setdefault(place, {})[short] = metric
    return dict(sorted(found.items(), key=lambda item: (item[0].count("/") > 1, -len(item[1]), item[0])))


def _compared(test_set: TestSet, systems: Sequence[System], num_resamples: int) -> ComparedSet:
    facts = facts_of(test_set)
    labelled = [system for system in systems if test_set.judged(system)]
    slices = slice_metrics(test_set, labelled, facts, num_resamples=num_resamples) if labelled else []
    return ComparedSet(
        test_set=test_set,
        systems=systems,
        facts=facts,
        slices=slices,
        confusions={system.name: confusion(test_set, system) for system in labelled},
    )


def confusion(test_set: TestSet, system: System) -> Table:
    """Counts gold against called on the rows that a system has judged."""
    rows = test_set.judged(system)
    outcomes = join_outcomes(rows, {example.id: system.predictions[example.id] for example in rows})
    counts = np.bincount(outcomes.gold.astype(np.intp) * 3 + outcomes.called, minlength=6)
    return counts.reshape(2, 3)


def _best_first(test_set: TestSet) -> list[System]:
    """Orders systems by the main metric that most of them have; those without it come last."""
    names = [_short(system.run, test_set.name) for system in test_set.systems]
    main = next((name for name in MAIN if any(name in own for own in names)), "")
    sign = 1 if main in LOWER_IS_BETTER else -1

    def key(item: tuple[System, Mapping[str, Metric]]) -> float:
        return sign * item[1][main].value if main in item[1] else np.inf

    return [system for system, _ in sorted(zip(test_set.systems, names, strict=True), key=key)]


def _short(run: Run, name: str) -> dict[str, Metric]:
    parts = {full: parts_of(full) for full in run.metrics}
    return {
        short: run.metrics[full]
        for full, (split, dataset, short) in parts.items()
        if split == "test" and data_name(run, dataset) == name
    }
