"""Ranks the runs of a sweep by the validation that chose their checkpoints.

Test figures are shown and do not rank. Runs that differ only in their seed are one row: the mean over the seeds with
its interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from faithkit.errors import UserError
from faithkit.runs.listing import FAILED, Chosen, SweepJob, SweepRecord, chosen_of, read_sweep, tested
from faithkit.runs.reading import Run, State
from faithkit.scores.measures import kind_of
from faithkit.settings.config_files import SWEEP_FILE
from faithkit.statistics.metric import Metric, average_runs

SEED = "seed"


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
    return RankedSweep(record=record, rankings=rankings, notes=[*notes, *_notes(record, rankings)])


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


def _notes(record: SweepRecord, rankings: Sequence[Ranking]) -> list[str]:
    done = {one.job.name for ranking in rankings for one in ranking.runs}
    failed = [job for job in record.jobs.values() if job.ended == FAILED]
    notes = [f"{job.name} failed{f': {job.problem}' if job.problem else ''}" for job in failed]
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
    return notes
