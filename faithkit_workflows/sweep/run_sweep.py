"""A sweep of train.py: every job is a run in a separate folder, with a table that ranks them.

faithkit train -m optimizer.lr=1e-4,2e-4 seed=1,2
"""

import logging
import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from faithkit import signals
from faithkit.cli import SWEEP_VARIABLE
from faithkit.embedded_name import mark_embedded
from faithkit.errors import UserError, raise_problems
from faithkit.files.run_folder import log_to
from faithkit.files.run_lock import is_locked, run_lock
from faithkit.packages import missing
from faithkit.runs.listing import chosen_of
from faithkit.runs.reading import read_run
from faithkit.runs.run import State
from faithkit.runs.sweeps import DONE, FAILED, INTERRUPTED, SweepJob, SweepRecord, write_sweep
from faithkit.settings.command_line import CommandLine
from faithkit_workflows.settings.training import JOBLIB, OPTUNA, Sweep
from faithkit_workflows.sweep.launching import Launcher, TrainJob, build_launcher
from faithkit_workflows.sweep.sweep_search import OptunaSearch, Plan, grid_jobs, open_record, read_plan, stored_command

AddResult = Callable[[SweepJob, float | None], None]
LOGS = "logs"  # the folder for the output of jobs
LOCK_SECONDS = 60  # the longest wait for a job of an earlier command to stop
QUIET = "callbacks.progress_bar=false"  # the output of a job is a file


class Jobs:
    """The running jobs of one sweep.

    Args:
        record: The record of the sweep; each change is written immediately.
        add_result: Is given each job that has ended, with its value, or None if it has none.
        monitor: The metric that every job must be chosen by; None if jobs may differ.
        total: The total number of jobs.
    """

    def __init__(
        self, record: SweepRecord, launcher: Launcher, add_result: AddResult, *, monitor: str | None, total: int
    ):
        self.record, self.launcher, self.add_result = record, launcher, add_result
        self.monitor, self.total, self.lock = monitor, total, threading.Lock()

    def run(self, jobs: Iterable[SweepJob], num_parallel: int) -> None:
        """Runs all jobs, each requested when a slot is free; a failed job does not stop the others."""
        from joblib import Parallel, delayed

        (self.record.folder / LOGS).mkdir(exist_ok=True)
        # Threads that wait for processes; each requests its next job after recording the result of the previous one.
        parallel = Parallel(n_jobs=num_parallel, backend="threading", batch_size=1, pre_dispatch=num_parallel)
        try:
            parallel(delayed(self._run_job)(job) for job in jobs)
        except BaseException:  # Ctrl-C and signals above all
            self.launcher.stop()
            raise

    def _run_job(self, job: SweepJob) -> None:
        folder, output = self.record.folder / job.name, self.record.folder / LOGS / f"{job.name}.log"
        self._write(replace(job, ended=None, problem=None))
        with self.lock:
            number = list(self.record.jobs).index(job.name) + 1
        log.info("job %d of %d, %s", number, self.total, job.name)
        began = time.monotonic()
        code = 0 if read_run(folder).state == State.FINISHED else self._run(job, folder, output)
        seconds = round((job.seconds or 0.0) + time.monotonic() - began, 1)
        ended, value = self._judge(replace(job, seconds=seconds), folder, output, code)
        self.add_result(ended, value)
        self._write(ended)
        result = f"{value:.4f}" if value is not None else ended.problem or ended.ended
        log.info("job %d of %d, %s: %s, after %.0f s", number, self.total, job.name, result, seconds)

    def _run(self, job: SweepJob, folder: Path, output: Path) -> int:
        waited = time.monotonic()
        while is_locked(folder) and time.monotonic() - waited < LOCK_SECONDS:
            time.sleep(0.5)
        shared = self.record.command(job)
        quiet = [] if any("progress_bar" in text for text in shared) else [QUIET]
        environ = {SWEEP_VARIABLE: self.record.folder.resolve().name}
        train = TrainJob(folder=str(folder), arguments=(*shared, *quiet), environ=environ)
        return self.launcher.run(train, output)

    def _judge(self, job: SweepJob, folder: Path, output: Path, code: int) -> tuple[SweepJob, float | None]:
        """Finds out how a job ended, and its value for the ranking."""
        if code == signals.EXIT_CODE:
            return replace(job, ended=INTERRUPTED), None
        if code:
            return replace(job, ended=FAILED, problem=find_failure(output, code)), None
        chosen = chosen_of(read_run(folder))
        if chosen is None:
            return replace(job, ended=FAILED, problem="it has no validation metric"), None
        if self.monitor not in (None, chosen.monitor):
            return replace(job, ended=FAILED, problem=f"it was chosen by {chosen.monitor}, not {self.monitor}"), None
        return replace(job, ended=DONE), chosen.metric.value

    def _write(self, job: SweepJob) -> None:
        with self.lock:
            self.record = self.record.with_job(job)
            write_sweep(self.record)


def find_failure(output: Path, code: int) -> str:
    """Finds the reason of a failure in a job's output, in one line."""
    if code < 0:
        return f"killed by signal {-code}" + (": perhaps out of memory" if code == -9 else "")
    try:
        lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    errors = [line for line in lines if re.match(r"error: |\w*(Error|Exception)\b", line)]
    return errors[-1].removeprefix("error: ")[:200] if errors else f"exit code {code}"


def describe_failures(record: SweepRecord) -> UserError | None:
    """Returns an error that lists failed and interrupted jobs; None if there are none."""
    failed = [job for job in record.jobs.values() if job.ended == FAILED]
    interrupted = [job for job in record.jobs.values() if job.ended in (INTERRUPTED, None)]
    if not failed and not interrupted:
        return None
    counts = [f"{len(failed)} failed"] * bool(failed) + [f"{len(interrupted)} were interrupted"] * bool(interrupted)
    problem = f"of {len(record.jobs)} jobs {' and '.join(counts)}"
    if failed:
        problem += f"; {failed[0].name}: {failed[0].problem}"
    hint = f"fix the problem and resume: faithkit train -m resume={record.folder}; finished jobs are kept"
    return UserError(problem, place=str(record.folder / LOGS), hint=hint)


SUBMITIT_FOLDER = "submitit"  # within the sweep's folder, for submitit's files
log = logging.getLogger("faithkit")


def sweep(line: CommandLine, launcher: Launcher | None = None) -> None:
    """Runs the sweep of a command line.

    Args:
        launcher: Replaces the launcher that `sweep.launcher` names.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:  # each of its processes would start the same sweep
        why = "torchrun starts one training, and a sweep starts its trainings itself"
        raise UserError(why, hint="faithkit train -m ... trainer=ddp without torchrun")
    line = stored_command(line)
    tried: list[Any] = []
    line.check_sweep(use=tried.append)
    plan = read_plan(line)
    options = Sweep.model_validate(plain_block(tried[0].sweep))
    raise_problems(_missing_packages(options))
    for cfg in tried:
        mark_embedded(cfg)
    monitors = list(dict.fromkeys((str(cfg.callbacks.monitor), str(cfg.callbacks.mode)) for cfg in tried))
    if options.search == OPTUNA:
        _check_search(plan, monitors)
    elif intervals := [head for head, override in plan.varied.items() if is_interval(override)]:
        raise UserError(f"a grid has no interval: {intervals[0]}", hint="add sweep=optuna, or list the values: a,b,c")
    plan.folder.mkdir(parents=True, exist_ok=True)
    with run_lock(plan.folder):
        record = open_record(plan)
        proposed: Iterable[SweepJob]
        add_result: AddResult = _ignore_result
        if options.search == OPTUNA:
            search = _optuna_search(plan, record, options, mode=monitors[0][1])
            proposed, total, add_result = search.jobs(), options.num_trials, search.add_result
        else:
            combinations = grid_jobs(plan, record)
            proposed, total = (job for job in combinations if job.ended != DONE), len(combinations)
        write_sweep(record)
        log_to(plan.folder / "sweep.log")
        log.info("%d jobs in %s", total, plan.folder)
        launcher = launcher or build_launcher(options, plan.folder / SUBMITIT_FOLDER)
        only = monitors[0][0] if len(monitors) == 1 else None
        jobs = Jobs(record, launcher, add_result, monitor=only, total=total)
        try:
            jobs.run(proposed, options.num_parallel)
        except signals.Interrupted as error:
            raise signals.Interrupted(f"resume with: faithkit train -m resume={plan.folder}") from error
    show_result(jobs.record)
    if problem := describe_failures(jobs.record):
        raise problem


def plain_block(block: Any) -> dict[str, Any]:
    """Converts a block of the configuration to plain containers."""
    from omegaconf import OmegaConf

    found = OmegaConf.to_container(block, resolve=True)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


def is_interval(override: Any) -> bool:
    """Reports whether an override gives an interval, not values."""
    from hydra.core.override_parser.types import IntervalSweep

    return isinstance(override.value(), IntervalSweep)


def _missing_packages(options: Sweep) -> list[UserError]:
    found = [] if options.search != OPTUNA else list(missing("sweep=optuna"))
    launcher = "joblib" if options.launcher == JOBLIB else "submitit"
    return [*found, *missing(f"sweep.launcher={launcher}", f"sweep.launcher={options.launcher}")]


def _check_search(plan: Plan, monitors: list[tuple[str, str]]) -> None:
    if not plan.varied:
        hint = "add what may vary: 'optimizer.lr=tag(log,interval(1e-5,1e-3))' or model.dropout=0,0.1"
        raise UserError("sweep=optuna has nothing to choose", hint=hint)
    if len(monitors) > 1:
        names = " and ".join(monitor for monitor, _ in monitors[:2])
        hint = "let it choose within one model and dataset; a grid compares several"
        raise UserError(f"sweep=optuna needs one metric, and these jobs are chosen by {names}", hint=hint)


def _ignore_result(job: SweepJob, value: float | None) -> None:
    """A grid does not depend on results."""


def _optuna_search(plan: Plan, record: SweepRecord, options: Sweep, *, mode: str) -> OptunaSearch:
    results: dict[str, float] = {}
    for job in record.jobs.values():
        run = read_run(plan.folder / job.name)
        if run.state == State.FINISHED and job.ended == DONE and (chosen := chosen_of(run)) is not None:
            results[job.name] = chosen.metric.value
    return OptunaSearch(plan, record, options, mode=mode, results=results)


def show_result(record: SweepRecord) -> None:
    """Prints the ranked runs and the next commands."""
    from faithkit.pages.page_tables import print_tables
    from faithkit.runs.reading import is_run
    from faithkit_workflows.compare.comparison_tables import ranking_tables, sweep_lines
    from faithkit_workflows.compare.sweep_ranking import rank_sweep

    runs = [read_run(folder) for name in record.jobs if is_run(folder := record.folder / name)]
    ranked = rank_sweep(record, runs)
    print_tables(*ranking_tables(ranked))
    print(*sweep_lines(ranked), sep="\n")
    print(f"compare: faithkit report {shlex.quote(f'runs={record.folder}/*')}")
    print(record.folder)
