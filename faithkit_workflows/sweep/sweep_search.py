"""Reads a sweep's command line, and proposes its jobs: a grid of values, or a search by Optuna.

Optuna's study is in memory and is rebuilt from sweep.json and the runs' folders; there is no database.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.run_folder import SWEEP_FILE, RunFolder
from faithkit.runs.sweeps import DONE, SweepJob, SweepRecord, read_sweep
from faithkit.settings.command_line import CommandLine
from faithkit.settings.overrides import parse_overrides, sweep_values
from faithkit.targets import find_outside_code
from faithkit_workflows.settings.training import Sweep

MAX_NAME_LENGTH = 120  # of a job's folder
MAY_CHANGE = "what may change: sweep.num_parallel, sweep.launcher and the other keys of sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A sweep before its first job.

    Args:
        arguments: The arguments of the command, without the folder.
        varied: Hydra's overrides of the varied settings, by their keys (`optimizer.lr`, `+new.key`).
        folder: The folder of the sweep.
    """

    arguments: tuple[str, ...]
    varied: Mapping[str, Any]
    folder: Path

    @property
    def record(self) -> SweepRecord:
        """Returns the record of this sweep before its first job."""
        keys = tuple(head.lstrip("+") for head in self.varied)
        return SweepRecord(folder=self.folder, arguments=self.arguments, varied=keys)


def stored_command(line: CommandLine) -> CommandLine:
    """Returns the command of the sweep that `resume=` names with the new arguments, or else the line itself.

    Raises:
        UserError: There is no such sweep, or a new argument changes what it trains.
    """
    given = line.overrides
    named = [text for text in given if text.partition("=")[0] == "resume"]
    if not named:
        return line
    folder = Path(named[-1].partition("=")[2].strip("'\""))
    if not (folder / SWEEP_FILE).is_file():
        hint = f"leave out -m: faithkit {line.config_name} resume={folder}"
        if not (folder / "config.yaml").is_file():
            hint = "set resume to the folder of a sweep"
        raise UserError(f"no sweep: there is no {SWEEP_FILE}", place=str(folder), hint=hint)
    others = [text for text in given if text not in named]
    if wrong := [text for text in others if not re.match(r"\+*(sweep\b|debug=|extensions=)", text)]:
        raise UserError(f"a sweep keeps its settings: {' '.join(wrong)}", place=str(folder), hint=MAY_CHANGE)
    record = read_sweep(folder)
    stored = record.arguments
    if foreign := find_outside_code([*stored, *(text for job in record.jobs.values() for text in job.overrides)]):
        hint = f"where you trust it, type the whole command again, with run_dir={folder}"
        raise UserError(f"{SWEEP_FILE} names code that is not this project's: {foreign}", place=str(folder), hint=hint)
    replaced = {text.partition("=")[0] for text in others}
    kept = [text for text in stored if text.partition("=")[0] not in replaced]
    return CommandLine(line.configs, line.config_name, ["-m", *kept, *others, f"run_dir={folder}"], line.settings)


def read_plan(line: CommandLine) -> Plan:
    """Reads the plan of a sweep from a checked command line."""
    texts = line.overrides
    parsed = {override.key_or_group: override for override in parse_overrides(texts)[0]}
    for key in parsed:
        if parsed[key].is_sweep_override() and (key in ("run_dir", "sweep") or key.startswith("sweep.")):
            raise UserError(f"{key} cannot be swept over", hint=f"give {key} one value")
    swept = [override for override in parsed.values() if override.is_sweep_override()]
    varied = {str(override.input_line).partition("=")[0]: override for override in swept}
    folder: Any = parsed["run_dir"].value() if "run_dir" in parsed else None
    if isinstance(folder, str) and "${" in folder:
        hint = "name one folder for the whole sweep: its runs get folders in it, named by what differs"
        raise UserError(f"run_dir is {folder!r}", hint=hint)
    arguments = tuple(text for text in texts if text.partition("=")[0] != "run_dir")
    return Plan(arguments=arguments, varied=varied, folder=Path(folder) if folder else _new_folder(varied))


def _new_folder(varied: Iterable[str]) -> Path:
    keys = "-".join(_short_names([head.lstrip("+") for head in varied]).values()) or "one"
    return Path(f"runs/{datetime.now():%Y-%m-%d_%H-%M-%S}-sweep-{keys[:60]}")


def open_record(plan: Plan) -> SweepRecord:
    """Reads the record of the sweep in the folder, or creates a new one; further values of a grid are new jobs.

    Raises:
        UserError: The folder contains another sweep or other files.
    """
    new = plan.record
    if not (plan.folder / SWEEP_FILE).exists():
        if any(name.name != ".lock" for name in plan.folder.glob("*")):
            raise UserError("run_dir is not empty, and holds no sweep", place=str(plan.folder), hint="choose another")
        return new
    old = read_sweep(plan.folder)
    if sorted(old.varied) != sorted(new.varied) or sorted(old.shared) != sorted(new.shared):
        differs = sorted({*old.shared, *old.varied} ^ {*new.shared, *new.varied})
        hint = "choose another run_dir; or resume the old one: faithkit train -m resume="
        raise UserError(
            f"this folder holds another sweep; these differ: {', '.join(differs)[:200]}",
            place=str(plan.folder),
            hint=f"{hint}{plan.folder}",
        )
    jobs = {name: job if _is_there(plan.folder, job) else replace(job, ended=None) for name, job in old.jobs.items()}
    return replace(new, jobs=jobs)


def _is_there(folder: Path, job: SweepJob) -> bool:
    """Reports whether the run of a finished job still exists."""
    return job.ended != DONE or RunFolder(folder / job.name).metrics.exists()


def grid_jobs(plan: Plan, record: SweepRecord) -> list[SweepJob]:
    """Lists a job for every combination of the values; the last key changes first."""
    known = dict(record.jobs)
    jobs = []
    for combination in product(*(sweep_values(override) for override in plan.varied.values())):
        job = make_job(dict(zip(plan.varied, combination, strict=True)), known)
        known[job.name] = job
        jobs.append(job)
    return jobs


def make_job(settings: Mapping[str, str], jobs: Mapping[str, SweepJob], number: int | None = None) -> SweepJob:
    """Finds the job with these settings, or creates one with an unused name.

    Args:
        jobs: The existing jobs.
        number: A prefix for the names of jobs with random values.
    """
    for job in jobs.values():
        if dict(job.settings) == dict(settings):
            return job
    short = _short_names([head.lstrip("+") for head in settings])
    parts = [f"{short[head.lstrip('+')]}-{_plain(value)}" for head, value in settings.items()]
    stem = "_".join([*([] if number is None else [f"{number:03d}"]), *parts])[:MAX_NAME_LENGTH] or "one"
    name, attempt = stem, 1
    while name in jobs:
        attempt += 1
        name = f"{stem}-{attempt}"
    return SweepJob(name=name, settings=dict(settings))


def _short_names(keys: Sequence[str]) -> dict[str, str]:
    """Shortens keys to the last parts that make them unique."""
    found = {}
    for key in keys:
        parts = key.split(".")
        count = 1
        while any(other != key and other.split(".")[-count:] == parts[-count:] for other in keys):
            count += 1
        found[key] = ".".join(parts[-count:])
    return found


def _plain(value: str) -> str:
    """Formats a value for the name of a folder, without characters that a shell interprets."""
    try:
        number = float(value)
        value = value if len(value) <= 8 else f"{number:.4g}"
    except ValueError:
        pass
    return re.sub(r"[^\w.+-]+", "-", value, flags=re.ASCII).strip("-")[:40] or "x"


class OptunaSearch:
    """Proposes settings until there are `num_trials` results.

    Args:
        results: The value of each finished job, by name.
    """

    def __init__(self, plan: Plan, record: SweepRecord, options: Sweep, *, mode: str, results: Mapping[str, float]):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = {head: distribution_of(head, override) for head, override in plan.varied.items()}
        self.known = dict(record.jobs)
        # A resumed search needs another seed: the same one would draw the first settings again.
        seed = (options.seed + len(self.known)) % 2**32
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        directions = optuna.study.StudyDirection
        direction = directions.MINIMIZE if mode == "min" else directions.MAXIMIZE
        self.study = optuna.create_study(sampler=samplers[options.sampler](seed=seed), direction=direction)
        self.trials = dict[str, Any]()
        self.lock = threading.Lock()
        pending = []
        for job in self.known.values():
            params = self._params(job)
            if job.name in results:
                trial = optuna.create_trial(params=params, value=results[job.name], distributions=self.space)
                self.study.add_trial(trial)
            else:
                pending.append(params)
        self.left = max(options.num_trials - len(results), 0)
        for params in pending[: self.left]:
            self.study.enqueue_trial(params)

    def jobs(self) -> Iterator[SweepJob]:
        """Yields interrupted and failed jobs first, then what Optuna proposes."""
        for _ in range(self.left):
            with self.lock:
                trial = self.study.ask(fixed_distributions=self.space)
                drawn = {head: trial.params[head] for head in self.space}
                settings = {head: one if isinstance(one, str) else repr(one) for head, one in drawn.items()}
                job = make_job(settings, self.known, number=len(self.known))
                self.known[job.name] = job
                self.trials[job.name] = trial
            yield job

    def add_result(self, job: SweepJob, value: float | None) -> None:
        """Records a result; a job without one has failed."""
        from optuna.trial import TrialState

        is_done = job.ended == DONE
        state = TrialState.COMPLETE if is_done else TrialState.FAIL
        with self.lock:
            self.study.tell(self.trials[job.name], value if is_done else None, state=state)

    def _params(self, job: SweepJob) -> dict[str, Any]:
        """Converts the settings of a job to Optuna's parameters.

        Raises:
            UserError: They are not in the search space of this sweep.
        """
        try:
            return {head: _read(job.settings[head], distribution) for head, distribution in self.space.items()}
        except (KeyError, ValueError) as error:
            hint = "its values must be among those of the command; choose another run_dir"
            raise UserError(f"the job {job.name} has other settings than this sweep: {error}", hint=hint) from error


def distribution_of(head: str, override: Any) -> Any:
    """Converts a Hydra sweep to a distribution: interval(a,b), also tagged log or int, range(...), or single values.

    Raises:
        UserError: The range is empty.
    """
    from hydra.core.override_parser.types import IntervalSweep, RangeSweep
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    value = override.value()
    is_log = "log" in getattr(value, "tags", ())
    try:
        if isinstance(value, IntervalSweep):
            kind: Any = IntDistribution if isinstance(value.start, int) else FloatDistribution
            return kind(value.start, value.end, log=is_log)
        if isinstance(value, RangeSweep):
            steps = list(override.sweep_string_iterator())
            if all(isinstance(one, int) for one in (value.start, value.stop, value.step)) and steps and value.step > 0:
                return IntDistribution(int(steps[0]), int(steps[-1]), step=int(value.step))
            return CategoricalDistribution(steps)
        return CategoricalDistribution(list(override.sweep_string_iterator()))
    except ValueError as error:
        raise UserError(f"{override.input_line}: {error}", hint=f"write '{head}=interval(LOW,HIGH)'") from error


def _read(text: str, distribution: Any) -> Any:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        value: Any = text
        inside = text in distribution.choices
    else:
        value = int(text) if isinstance(distribution, IntDistribution) else float(text)
        inside = distribution.low <= value <= distribution.high
    if not inside:
        raise ValueError(f"{text} is not in {distribution}")
    return value
