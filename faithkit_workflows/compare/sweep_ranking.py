"""Ranks the runs of a sweep by the validation that chose their checkpoints, and tests which settings had an effect.

Test figures are shown and do not rank. Runs that differ only in their seed are one row: the mean over the seeds with
its interval. The test of a setting is Fisher's permutation test of the variance between values: it asks how often runs
that are assigned to the values at random would differ as much. With four runs p cannot be below one in three.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError
from faithkit.files.run_folder import SWEEP_FILE
from faithkit.runs.listing import Chosen, chosen_of, tested
from faithkit.runs.run import Run, State
from faithkit.runs.sweeps import FAILED, PRUNED, SweepJob, SweepRecord, read_sweep
from faithkit.statistics.metric import Metric, average_runs

SEED = "seed"
MAX_NUMBERS = 5  # more values of a numeric setting are grouped into thirds
NUM_RESAMPLES = 4999


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
class SettingEffect:
    """The effect of a setting on the ranked figure.

    Args:
        p_value: Of the permutation test.
        corrected: By Holm, for the settings of this sweep.
        values: By value, or by third, the mean over runs with its interval; n is the number of runs.
    """

    key: str
    p_value: float
    values: Mapping[str, Metric]
    corrected: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The runs that are chosen by one metric, the best first.

    Args:
        effects: The settings that vary, by their p-value.
        effect_notes: Notes on the effects.
    """

    monitor: str
    is_lower_better: bool
    test_name: str | None
    rows: Sequence[RankedRow]
    effects: Sequence[SettingEffect] = ()
    effect_notes: Sequence[str] = ()

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
    is_search = any(argument.lstrip("+") == "sweep=optuna" for argument in record.arguments)
    most_runs_first = sorted(by_monitor.items(), key=lambda item: -len(item[1]))
    rankings = [_with_effects(_rank(*key, of_metric), is_search) for key, of_metric in most_runs_first]
    return RankedSweep(record=record, rankings=rankings, notes=[*notes, *_notes(record, rankings)])


def _rank(monitor: str, is_lower_better: bool, runs: Sequence[RankedRun]) -> Ranking:
    sign = 1 if is_lower_better else -1

    def order(one: RankedRun | RankedRow) -> float:
        return sign * (one.chosen.metric if isinstance(one, RankedRun) else one.validation).value

    has_seeds = len({tuple(_without_seed(one.settings).items()) for one in runs}) < len(runs)
    by_settings: dict[tuple[tuple[str, str], ...], list[RankedRun]] = {}
    for one in sorted(runs, key=order):
        settings = _without_seed(one.settings) if has_seeds else one.settings
        by_settings.setdefault(tuple(settings.items()), []).append(one)
    names = {one.test[0] for one in runs if one.test is not None}
    test_name = names.pop() if len(names) == 1 else None
    rows = sorted((_row(dict(key), of_row, test_name) for key, of_row in by_settings.items()), key=order)
    return Ranking(monitor=monitor, is_lower_better=is_lower_better, test_name=test_name, rows=rows)


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
    done = {one.job.name for ranking in rankings for one in ranking.runs}
    failed = [job for job in record.jobs.values() if job.ended == FAILED]
    notes = [f"{job.name} failed{f': {job.problem}' if job.problem else ''}" for job in failed]
    pruned = sum(job.ended == PRUNED for job in record.jobs.values())
    if pruned:
        notes.append(f"{pruned} jobs were ended early by their validations, and are not ranked")
    missing = [j.name for j in record.jobs.values() if j.ended not in (FAILED, PRUNED) and j.name not in done]
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


def _with_effects(ranking: Ranking, is_search: bool) -> Ranking:
    """Measures how much each varied setting changes the figure.

    Args:
        is_search: The settings were proposed by a search, which prefers values that were good before.
    """
    from statsmodels.stats.multitest import multipletests

    scores = np.array([one.chosen.metric.value for one in ranking.runs])
    keys = dict.fromkeys(key for one in ranking.runs for key in one.settings)
    columns = {key: [one.settings.get(key, "") for one in ranking.runs] for key in keys}
    columns = {key: values for key, values in columns.items() if len(set(values)) > 1}
    if len(scores) < 3 or not columns:
        return replace(ranking, effect_notes=["fewer than three runs: the effect of settings is unknown"])
    effects = [
        SettingEffect(
            key=key,
            p_value=permutation_p(group_values(values), scores),
            values={name: average_runs(group, len(group)) for name, group in _scores_by_value(values, scores).items()},
        )
        for key, values in columns.items()
    ]
    effects.sort(key=lambda effect: effect.p_value)
    corrected = multipletests([effect.p_value for effect in effects], method="holm")[1]
    effects = [replace(effect, corrected=float(p)) for effect, p in zip(effects, corrected, strict=True)]
    notes = []
    if np.ptp(scores) == 0:
        notes.append("all runs have the same figure: no setting has an effect")
    if is_search:
        notes.append("a search repeats good values, and p assumes that values are drawn at random: it is only a hint")
    if SEED in columns:
        notes.append("the seed is chance: settings with no more effect than the seed have none")
    return replace(ranking, effects=effects, effect_notes=notes)


def parse_numbers(values: Sequence[str]) -> NDArray[np.float64] | None:
    """Parses values as numbers; None where they are names."""
    try:
        numbers = np.array([float(value) for value in values])
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def group_values(values: Sequence[str]) -> list[str]:
    """Returns the group of each value: the value itself, or of many numbers the third that it lies in."""
    numbers = parse_numbers(values)
    if numbers is None or len(set(values)) <= MAX_NUMBERS:
        return list(values)
    thirds = np.searchsorted(np.quantile(numbers, [1 / 3, 2 / 3]), numbers)
    names = {n: f"{numbers[thirds == n].min():.3g} to {numbers[thirds == n].max():.3g}" for n in np.unique(thirds)}
    return [names[third] for third in thirds]


def _scores_by_value(values: Sequence[str], scores: NDArray[np.float64]) -> dict[str, list[float]]:
    groups, numbers = group_values(values), parse_numbers(values)
    order = np.argsort(groups if numbers is None else numbers, kind="stable")
    found: dict[str, list[float]] = {}
    for place in order:
        found.setdefault(groups[place], []).append(float(scores[place]))
    return found


def permutation_p(groups: Sequence[str], scores: NDArray[np.float64]) -> float:
    """Tests whether the figure differs between groups."""
    from scipy.stats import permutation_test

    names = list(dict.fromkeys(groups))
    member = np.array([[group == name for name in names] for group in groups], dtype=float)
    member /= np.sqrt(member.sum(axis=0))

    def between(permuted: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
        # Rounded: equal sums, added in another order, must not count as smaller.
        return np.asarray(((permuted @ member) ** 2).sum(axis=-1).round(12))

    found = permutation_test(
        (scores - scores.mean(),),
        between,
        permutation_type="pairings",
        vectorized=True,
        n_resamples=NUM_RESAMPLES,
        alternative="greater",
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)
