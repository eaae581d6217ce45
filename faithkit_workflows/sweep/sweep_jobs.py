"""Runs the jobs of a sweep, several at a time, and records how each of them ended."""

import logging
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

from faithkit import signals
from faithkit.cli import SWEEP_VARIABLE
from faithkit.errors import UserError
from faithkit.files.run_lock import is_locked
from faithkit.runs.listing import chosen_of
from faithkit.runs.reading import read_run
from faithkit.runs.run import State
from faithkit.runs.sweeps import DONE, FAILED, INTERRUPTED, SweepJob, SweepRecord, write_sweep
from faithkit_workflows.sweep.launching import Launcher, TrainJob
from faithkit_workflows.sweep.sweep_search import Search

LOGS = "logs"  # the folder for the output of jobs
LOCK_SECONDS = 60  # the longest wait for a job of an earlier command to stop
QUIET = "callbacks.progress_bar=false"  # the output of a job is a file
log = logging.getLogger("faithkit")


class Jobs:
    """The running jobs of one sweep.

    Args:
        record: The record of the sweep; each change is written immediately.
        monitor: The metric that every job must be chosen by; None if jobs may differ.
        total: The total number of jobs.
    """

    def __init__(
        self, record: SweepRecord, search: Search, launcher: Launcher, *, monitor: str | None = None, total: int
    ):
        self.record, self.search, self.launcher, self.monitor, self.total = record, search, launcher, monitor, total
        self.lock = threading.Lock()

    def run(self, num_parallel: int) -> None:
        """Runs all jobs; a failed job does not stop the others."""
        from joblib import Parallel, delayed

        (self.record.folder / LOGS).mkdir(exist_ok=True)
        # Threads that wait for processes; each requests its next job after recording the result of the previous one.
        parallel = Parallel(n_jobs=num_parallel, backend="threading", batch_size=1, pre_dispatch=num_parallel)
        try:
            parallel(delayed(self._run_job)(job) for job in self.search.jobs())
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
        self.search.add_result(ended, value)
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
