"""Ranks the runs of a sweep by the validation that chose their checkpoints; test figures stand beside and rank nothing.

Runs that differ in their seed alone are one row: the mean over the seeds with its interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from faithkit.errors import UserError
from faithkit.files.run_folder import SWEEP_FILE
from faithkit.runs.listing import Chosen, chosen_of, tested
from faithkit.runs.run import Run, State
from faithkit.runs.sweeps import FAILED, PRUNED, SweepJob, SweepRecord, read_sweep
from faithkit.statistics.metric import Metric, average_runs

SEED = "seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRun:
    """A run of a sweep with its figures.

    Args:
        test: The test metric of the same name, as its name and value.
    """

    job: SweepJob
    run: Run
    chosen: Chosen
    test: tuple[str, Metric] | None

    @property
    def settings(self) -> dict[str, str]:
        """The settings that differ, by key."""
        return {key.lstrip("+"): value for key, value in self.job.settings.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRow:
    """Runs of the same settings but for the seed, with the mean of their figures.

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
        """Tells the settings in a line."""
        told = ", ".join(f"{key}={short_value(value)}" for key, value in self.settings.items())
        return told or self.runs[0].run.name


def short_value(value: str) -> str:
    """Shortens a number of many digits, as a search draws it, to four."""
    try:
        return f"{float(value):.4g}" if len(value) > 8 else value
    except ValueError:
        return value


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
        notes: Sentences on what is not ranked, and on what a figure does not say.
    """

    record: SweepRecord
    rankings: Sequence[Ranking]
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def is_search(self) -> bool:
        """Tells whether each job was proposed by what the jobs before it came to."""
        return any(argument.lstrip("+") == "sweep=optuna" for argument in self.record.arguments)

    @property
    def name(self) -> str:
        """Names the sweep by its folder."""
        return self.record.folder.resolve().name


def sweeps_of(runs: Sequence[Run]) -> tuple[list[RankedSweep], list[str]]:
    """Finds the sweeps that runs come from, and ranks those of their runs that are given; also what cannot be read."""
    by_folder: dict[Path, list[Run]] = {}
    for run in runs:
        parent = run.folder.resolve().parent
        if (parent / SWEEP_FILE).is_file():
            by_folder.setdefault(parent, []).append(run)
    found, problems = [], []
    for folder, own in by_folder.items():
        try:
            record = read_sweep(folder)
        except UserError as error:
            problems.append(f"{folder.name}: {SWEEP_FILE} cannot be read, its runs are not ranked: {error.problem}")
            continue
        found.append(rank_sweep(record, own))
    return found, problems


def rank_sweep(record: SweepRecord, runs: Sequence[Run]) -> RankedSweep:
    """Ranks the runs of a sweep that have ended, those of each metric apart.

    Args:
        runs: All of the sweep, or some.
    """
    by_monitor: dict[tuple[str, bool], list[RankedRun]] = {}
    unknown = []
    for run in runs:
        job, chosen = record.jobs.get(run.folder.resolve().name), chosen_of(run)
        if job is None:
            unknown.append(run.name)
        elif run.state == State.FINISHED and chosen is not None and job.ended != FAILED:
            ranked = RankedRun(job=job, run=run, chosen=chosen, test=tested(run, chosen))
            by_monitor.setdefault((chosen.monitor, chosen.is_lower_better), []).append(ranked)
    rankings = [_rank(*key, own) for key, own in sorted(by_monitor.items(), key=lambda item: -len(item[1]))]
    notes = [f"{name} is in the folder, and none of its jobs: it is not ranked" for name in unknown]
    return RankedSweep(record=record, rankings=rankings, notes=[*notes, *_notes(record, rankings)])


def _rank(monitor: str, is_lower_better: bool, runs: Sequence[RankedRun]) -> Ranking:
    sign = 1 if is_lower_better else -1

    def order(one: RankedRun | RankedRow) -> float:
        return sign * (one.chosen.metric if isinstance(one, RankedRun) else one.validation).value

    has_seeds = len({tuple(_without_seed(one.settings).items()) for one in runs}) < len(runs)
    rows: dict[tuple[tuple[str, str], ...], list[RankedRun]] = {}
    for one in sorted(runs, key=order):
        settings = _without_seed(one.settings) if has_seeds else one.settings
        rows.setdefault(tuple(settings.items()), []).append(one)
    names = {one.test[0] for one in runs if one.test is not None}
    test_name = names.pop() if len(names) == 1 else None
    ranked = sorted((_row(dict(key), own, test_name) for key, own in rows.items()), key=order)
    return Ranking(monitor=monitor, is_lower_better=is_lower_better, test_name=test_name, rows=ranked)


def _row(settings: Mapping[str, str], runs: Sequence[RankedRun], test_name: str | None) -> RankedRow:
    tests = [one.test[1] for one in runs if one.test is not None] if test_name else []
    if len(runs) == 1:
        validation, test = runs[0].chosen.metric, tests[0] if tests else None
    else:
        validation = average_runs([one.chosen.metric.value for one in runs])
        test = average_runs([one.value for one in tests]) if len(tests) == len(runs) else None
    return RankedRow(settings=settings, runs=runs, validation=validation, test=test)


def _without_seed(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if key != SEED}


def _notes(record: SweepRecord, rankings: Sequence[Ranking]) -> list[str]:
    notes = []
    done = {one.job.name for ranking in rankings for one in ranking.runs}
    for job in record.jobs.values():
        if job.ended == FAILED:
            notes.append(f"{job.name} failed{f': {job.problem}' if job.problem else ''}")
    pruned = sum(job.ended == PRUNED for job in record.jobs.values())
    if pruned:
        notes.append(f"{pruned} jobs were ended early by their validations, and are not ranked")
    cut = [job.name for job in record.jobs.values() if job.ended not in (FAILED, PRUNED) and job.name not in done]
    if cut:
        notes.append(f"{len(cut)} of {len(record.jobs)} jobs have no result here: {', '.join(cut[:3])}")
    if len(rankings) > 1:
        monitors = ", ".join(ranking.monitor for ranking in rankings)
        notes.append(f"jobs are chosen by {len(rankings)} metrics ({monitors}): each is ranked by itself")
    if len(done) == 1:
        notes.append("one run alone has a result: there is nothing to rank it against")
    if len(done) > 1:
        notes.append(
            f"the best of {len(done)} runs was chosen by its validation figure, which is therefore too good; "
            "test figures ranked nothing: look at them once"
        )
    return notes
