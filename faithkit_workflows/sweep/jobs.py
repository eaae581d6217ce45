"""Carries out the jobs of a sweep, several at a time, and writes down how each of them ended."""

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from faithkit import signals
from faithkit.cli import SWEEP_VARIABLE
from faithkit.errors import UserError
from faithkit.files.run_lock import is_locked
from faithkit.runs.listing import chosen_of
from faithkit.runs.reading import CURVES, read_curves, read_run
from faithkit.runs.run import State
from faithkit.runs.sweeps import DONE, FAILED, INTERRUPTED, PRUNED, SweepJob, SweepRecord, write_sweep
from faithkit_workflows.sweep.launching import Launcher, TrainJob
from faithkit_workflows.sweep.search import Search

LOGS = "logs"  # beside the runs' folders: what each job prints
PATIENCE = 60  # seconds for a job of an earlier command to end, which has been told to
QUIET = "callbacks.progress_bar=false"  # what a job prints goes to a file
log = logging.getLogger("faithkit")


class Jobs:
    """The jobs of one sweep while they are carried out.

    Args:
        record: What is known of the sweep; each change is written at once.
        monitor: The metric that every job must be chosen by; None where jobs may differ.
        total: The jobs that there will be.
    """

    def __init__(
        self, record: SweepRecord, search: Search, launcher: Launcher, *, monitor: str | None = None, total: int
    ):
        self.record, self.search, self.launcher, self.monitor, self.total = record, search, launcher, monitor, total
        self.lock = threading.Lock()
        self.pruned: set[str] = set()

    def run(self, num_parallel: int) -> None:
        """Runs all jobs to their ends; a job that fails stops no other."""
        from joblib import Parallel, delayed

        (self.record.folder / LOGS).mkdir(exist_ok=True)
        # Threads that wait for processes. Each takes its next job when it has told the result of the one before.
        parallel = Parallel(n_jobs=num_parallel, backend="threading", batch_size=1, pre_dispatch=num_parallel)
        try:
            parallel(delayed(self._carry_out)(job) for job in self.search.jobs())
        except BaseException:  # Ctrl-C and signals above all
            self.launcher.stop()
            raise

    def _carry_out(self, job: SweepJob) -> None:
        folder, output = self.record.folder / job.name, self.record.folder / LOGS / f"{job.name}.log"
        self._write(replace(job, ended=None, problem=None))
        with self.lock:
            number = list(self.record.jobs).index(job.name) + 1
        log.info("job %d of %d, %s", number, self.total, job.name)
        began = time.monotonic()
        code = 0 if read_run(folder).state == State.FINISHED else self._run(job, folder, output)
        seconds = round((job.seconds or 0.0) + time.monotonic() - began, 1)
        self._hopeless(job, folder)()  # the last of its validations are told too
        ended, value = self._judge(replace(job, seconds=seconds), folder, output, code)
        self.search.tell(ended, value)
        self._write(ended)
        told = f"{value:.4f}" if value is not None else ended.problem or ended.ended
        log.info("job %d of %d, %s: %s, after %.0f s", number, self.total, job.name, told, seconds)

    def _run(self, job: SweepJob, folder: Path, output: Path) -> int:
        waited = time.monotonic()
        while is_locked(folder) and time.monotonic() - waited < PATIENCE:
            time.sleep(0.5)
        shared = self.record.command(job)
        quiet = [] if any("progress_bar" in text for text in shared) else [QUIET]
        environ = {SWEEP_VARIABLE: self.record.folder.resolve().name}
        train = TrainJob(folder=str(folder), arguments=(*shared, *quiet), environ=environ)
        return self.launcher.run(train, output, self._hopeless(job, folder))

    def _hopeless(self, job: SweepJob, folder: Path) -> Callable[[], bool]:
        path, seen = folder / CURVES, 0

        def is_hopeless() -> bool:
            nonlocal seen
            size = path.stat().st_size if path.exists() else 0
            if size == seen:
                return False
            seen = size
            if self.search.is_hopeless(job, read_curves(path).get(self.monitor or "", [])):
                self.pruned.add(job.name)
            return job.name in self.pruned

        return is_hopeless

    def _judge(self, job: SweepJob, folder: Path, output: Path, code: int) -> tuple[SweepJob, float | None]:
        """Finds how a job ended, and the figure that it is ranked by."""
        if code == signals.EXIT_CODE:
            return replace(job, ended=PRUNED if job.name in self.pruned else INTERRUPTED), None
        if code:
            return replace(job, ended=FAILED, problem=reason(output, code)), None
        chosen = chosen_of(read_run(folder))
        if chosen is None:
            return replace(job, ended=FAILED, problem="it tells no figure of its validation"), None
        if self.monitor not in (None, chosen.monitor):
            return replace(job, ended=FAILED, problem=f"it was chosen by {chosen.monitor}, not {self.monitor}"), None
        return replace(job, ended=DONE), chosen.metric.value

    def _write(self, job: SweepJob) -> None:
        with self.lock:
            self.record = self.record.with_job(job)
            write_sweep(self.record)


def reason(output: Path, code: int) -> str:
    """Finds in what a job printed why it failed, in one line."""
    if code < 0:
        return f"killed by signal {-code}" + (": perhaps out of memory" if code == -9 else "")
    try:
        lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    errors = [line for line in lines if re.match(r"error: |\w*(Error|Exception)\b", line)]
    return errors[-1].removeprefix("error: ")[:200] if errors else f"exit code {code}"


def failures(record: SweepRecord) -> UserError | None:
    """Tells the jobs that failed, or were interrupted by others than this command; None where there are none."""
    failed = [job for job in record.jobs.values() if job.ended == FAILED]
    cut = [job for job in record.jobs.values() if job.ended in (INTERRUPTED, None)]
    if not failed and not cut:
        return None
    counts = [f"{len(failed)} failed"] * bool(failed) + [f"{len(cut)} were interrupted"] * bool(cut)
    problem = f"of {len(record.jobs)} jobs {' and '.join(counts)}"
    if failed:
        problem += f"; {failed[0].name}: {failed[0].problem}"
    hint = f"mend it and go on: faithkit train -m resume={record.folder}; the others are not trained again"
    return UserError(problem, place=str(record.folder / LOGS), hint=hint)
