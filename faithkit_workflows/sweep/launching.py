"""Runs the jobs of a sweep, each as a process of its own: here, several at a time by joblib, or by submitit.

What trains in one process leaves neither its memory nor its threads to the next, and takes none with it when it falls.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from faithkit import signals
from faithkit.errors import UserError
from faithkit_workflows.settings.training import JOBLIB, LOCAL, Sweep
from faithkit_workflows.sweep.processes import end_of, quoted, script_environment

LOOK_SECONDS = 1.0  # between two looks at a job that may end before its time
TIMEOUT_MINUTES = 24 * 60  # of a job of submitit, whose own default of minutes no training would survive
GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class TrainJob:
    """One training: begun in its folder, or gone on with there. submitit calls it again after a time-out.

    Args:
        arguments: Of train.py, with run_dir.
        environ: Variables beside those of the process that runs it.
    """

    folder: str
    arguments: tuple[str, ...]
    environ: Mapping[str, str]

    def command(self) -> list[str]:
        """Writes the command: a new run, or the one that its folder has."""
        module = [sys.executable, "-m", "faithkit_workflows.train"]
        if not (Path(self.folder) / "config.yaml").exists():
            return [*module, *self.arguments, f"run_dir={quoted(self.folder)}"]
        named = [text for text in self.arguments if text.partition("=")[0].lstrip("+") in ("extensions", "debug")]
        return [*module, f"resume={quoted(self.folder)}", *named]

    def environment(self) -> dict[str, str]:
        """Gives all variables of the job's process."""
        return script_environment(self.environ)

    def __call__(self) -> int:
        # SLURM's word that time is over reaches this process and its child; it is for this one.
        process = subprocess.Popen(self.command(), env=self.environment(), preexec_fn=_leave_time_out_to_parent)
        _children.append(process)
        return end_of(process)

    def checkpoint(self) -> Any:
        """Ends the run in good order, and tells submitit to submit the job again, which goes on in its folder."""
        from submitit.helpers import DelayedSubmission

        for process in _children:
            process.send_signal(signal.SIGTERM)
            process.wait()
        return DelayedSubmission(self)


_children: list["subprocess.Popen[bytes]"] = []  # of this process, where it is one of submitit's


def _leave_time_out_to_parent() -> None:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


class Launcher(Protocol):
    """Runs one job to its end and gives its exit code; several threads call it at once."""

    def run(self, job: TrainJob, log: Path, is_hopeless: Callable[[], bool]) -> int:
        """Runs a job; what it prints goes to `log`. Where it is hopeless it is told to end, with exit code 130."""
        ...

    def stop(self) -> None:
        """Tells all running jobs to end, and waits for them."""
        ...


class Processes:
    """Processes of this machine.

    Args:
        gpus: Of several, each job sees one, as far as there are as many slots.
    """

    def __init__(self, num_parallel: int, gpus: Sequence[str]):
        self.slots: queue.SimpleQueue[Mapping[str, str]] = queue.SimpleQueue()
        for environ in slots(num_parallel, gpus):
            self.slots.put(environ)
        self.running: set[subprocess.Popen[bytes]] = set()
        self.lock, self.stopped = threading.Lock(), False

    def run(self, job: TrainJob, log: Path, is_hopeless: Callable[[], bool]) -> int:
        slot = self.slots.get()
        try:
            with log.open("ab") as output:
                process = self._start(job, slot, output)
                while True:
                    try:
                        return process.wait(timeout=LOOK_SECONDS)
                    except subprocess.TimeoutExpired:
                        if is_hopeless():
                            process.send_signal(signal.SIGTERM)
                            return process.wait()
        finally:
            self.slots.put(slot)

    def _start(self, job: TrainJob, slot: Mapping[str, str], output: Any) -> "subprocess.Popen[bytes]":
        with self.lock:
            if self.stopped:
                raise signals.Interrupted
            # A group of its own: Ctrl-C in the terminal reaches the sweep alone, which hands it on once.
            environ = {**job.environment(), **slot}
            process = subprocess.Popen(
                job.command(), env=environ, stdout=output, stderr=subprocess.STDOUT, process_group=0
            )
            self.running = {one for one in self.running if one.poll() is None} | {process}
        return process

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running:
            process.wait()


def slots(num_parallel: int, gpus: Sequence[str]) -> Iterable[Mapping[str, str]]:
    """Shares out cores and GPUs among jobs that run at the same time; one alone has all."""
    if num_parallel == 1:
        return [{}]
    threads = max((os.cpu_count() or 1) // num_parallel, 1)
    cores = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(threads)}
    return [{**cores, **({GPUS: gpus[number % len(gpus)]} if len(gpus) > 1 else {})} for number in range(num_parallel)]


def visible_gpus() -> list[str]:
    """Lists the GPUs that a job could use, without asking torch."""
    chosen = os.environ.get(GPUS)
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip()]
    return [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


class Submitit:
    """Jobs of SLURM, or of submitit's local executor.

    Args:
        folder: Where submitit keeps what it sends and gets.
    """

    def __init__(self, options: Sweep, folder: Path):
        import submitit

        self.executor = submitit.AutoExecutor(folder, cluster="local" if options.launcher == LOCAL else "slurm")
        try:
            self.executor.update_parameters(**{"timeout_min": TIMEOUT_MINUTES, **(options.submitit or {})})
        except (NameError, TypeError, ValueError, AssertionError) as error:
            hint = "use submitit's own, such as 'sweep.submitit={timeout_min: 240, slurm_partition: NAME}'"
            raise UserError(f"sweep.submitit: {' '.join(str(error).split())[:200]}", hint=hint) from error
        self.running: dict[str, Any] = {}
        self.lock, self.stopped = threading.Lock(), False

    def run(self, job: TrainJob, log: Path, is_hopeless: Callable[[], bool]) -> int:
        with self.lock:  # submitit has a state of its own while it submits
            if self.stopped:
                raise signals.Interrupted
            sent = self.running[job.folder] = self.executor.submit(job)
        is_told = False
        while not sent.done():
            if not is_told and is_hopeless():
                sent.cancel()
                is_told = True
            threading.Event().wait(LOOK_SECONDS)
        _copy_output(sent, log)
        if is_told or self.stopped:
            return signals.EXIT_CODE
        error = sent.exception()
        return 1 if error is not None else int(sent.result())

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
        for sent in self.running.values():
            if not sent.done():
                sent.cancel()


def _copy_output(sent: Any, log: Path) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.writelines(text for text in (sent.stdout(), sent.stderr()) if text)


def launcher_of(options: Sweep, folder: Path) -> Launcher:
    """Builds the launcher that `sweep.launcher` names."""
    if options.launcher == JOBLIB:
        return Processes(options.num_parallel, visible_gpus())
    return Submitit(options, folder)
