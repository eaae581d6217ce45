"""Runs commands and the jobs of a sweep as separate processes: on this machine, or by submitit.

A training in a separate process leaves no memory and no threads behind, and does not end the others when it crashes.
"""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Protocol

from faithkit import signals
from faithkit.errors import UserError
from faithkit.files.run_folder import RUN_DIR_VARIABLE
from faithkit_workflows.settings.training import JOBLIB, LOCAL, Sweep

ROOT = Path(__file__).resolve().parents[2]


def run_script_apart(script: str, arguments: Sequence[str], output: IO[Any] | None = None) -> int:
    """Runs a command of `faithkit` and returns its exit code.

    Args:
        script: The name of the command.
        output: The file for its output; None prints it.
    """
    return run_command([sys.executable, "-m", f"faithkit_workflows.{script}", *arguments], script_variables(), output)


def script_variables(more: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Returns the environment variables of a separate process: those of this one, and more."""
    environ = {name: value for name, value in os.environ.items() if name != RUN_DIR_VARIABLE} | dict(more)
    # A checkout that is not installed is found by its path.
    environ["PYTHONPATH"] = os.pathsep.join(path for path in (environ.get("PYTHONPATH"), str(ROOT)) if path)
    return environ


def run_command(command: Sequence[str], environ: Mapping[str, str], output: IO[Any] | None = None) -> int:
    """Runs a command; if this process is interrupted, the command is stopped too."""
    errors = subprocess.STDOUT if output else None
    return wait_for(subprocess.Popen(list(command), env=dict(environ), stdout=output, stderr=errors))


def wait_for(process: "subprocess.Popen[bytes]") -> int:
    """Waits for a process and returns its exit code; if this one is interrupted, it is stopped too."""
    try:
        return process.wait()
    except BaseException:  # Ctrl-C and signals are no subclasses of Exception
        process.send_signal(signal.SIGTERM)
        process.wait()
        raise


def quote_override(text: str) -> str:
    """Quotes a text so that Hydra does not interpret it."""
    if re.fullmatch(r"[\w./-]*[./][\w./-]*", text):  # an unambiguous path
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def trainer_overrides(trainer: Mapping[str, Any] | None) -> list[str]:
    """Returns a block `trainer` as arguments of train.py."""
    return [
        f"trainer.{key}={'null' if value is None else value}".replace(" ", "") for key, value in (trainer or {}).items()
    ]


POLL_SECONDS = 1.0  # between two checks of a running job
TIMEOUT_MINUTES = 24 * 60  # of a job of submitit; its default of minutes is too short for a training
GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class TrainJob:
    """A training that is started or resumed in its folder; submitit calls it again after a time-out.

    Args:
        arguments: Of train.py, without run_dir.
        environ: Additional environment variables.
    """

    folder: str
    arguments: tuple[str, ...]
    environ: Mapping[str, str]

    def command(self) -> list[str]:
        """Returns the command that starts the run or resumes it."""
        module = [sys.executable, "-m", "faithkit_workflows.train"]
        if not (Path(self.folder) / "config.yaml").exists():
            return [*module, *self.arguments, f"run_dir={quote_override(self.folder)}"]
        named = [text for text in self.arguments if text.partition("=")[0].lstrip("+") in ("extensions", "debug")]
        return [*module, f"resume={quote_override(self.folder)}", *named]

    def environment(self) -> dict[str, str]:
        """Returns all environment variables of the job's process."""
        return script_variables(self.environ)

    def __call__(self) -> int:
        # SLURM sends its time-out signal to this process and its child; only this one handles it.
        process = subprocess.Popen(self.command(), env=self.environment(), preexec_fn=_leave_time_out_to_parent)
        _children.append(process)
        return wait_for(process)

    def checkpoint(self) -> Any:
        """Stops the run and asks submitit to submit the job again, which resumes the run."""
        from submitit.helpers import DelayedSubmission

        for process in _children:
            process.send_signal(signal.SIGTERM)
            process.wait()
        return DelayedSubmission(self)


_children: list["subprocess.Popen[bytes]"] = []  # of this process, if submitit started it


def _leave_time_out_to_parent() -> None:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


class Launcher(Protocol):
    """Runs jobs and returns their exit codes; used by several threads."""

    def run(self, job: TrainJob, log: Path) -> int:
        """Runs a job with its output in `log`."""
        ...

    def stop(self) -> None:
        """Stops all running jobs and waits for them."""
        ...


class Processes:
    """Runs jobs on this machine.

    Args:
        gpus: If there are several, each job uses one.
    """

    def __init__(self, num_parallel: int, gpus: Sequence[str]):
        self.slots: queue.SimpleQueue[Mapping[str, str]] = queue.SimpleQueue()
        for environ in slots(num_parallel, gpus):
            self.slots.put(environ)
        self.running: set[subprocess.Popen[bytes]] = set()
        self.lock, self.stopped = threading.Lock(), False

    def run(self, job: TrainJob, log: Path) -> int:
        slot = self.slots.get()
        try:
            with log.open("ab") as output:
                return self._start(job, slot, output).wait()
        finally:
            self.slots.put(slot)

    def _start(self, job: TrainJob, slot: Mapping[str, str], output: Any) -> "subprocess.Popen[bytes]":
        with self.lock:
            if self.stopped:
                raise signals.Interrupted
            # A separate process group: Ctrl-C in the terminal reaches only the sweep, which stops each job once.
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
    """Assigns cores and GPUs to jobs that run at the same time; a single job has all."""
    if num_parallel == 1:
        return [{}]
    threads = max((os.cpu_count() or 1) // num_parallel, 1)
    cores = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(threads)}
    return [{**cores, **({GPUS: gpus[number % len(gpus)]} if len(gpus) > 1 else {})} for number in range(num_parallel)]


def visible_gpus() -> list[str]:
    """Lists the GPUs that a job can use, without importing torch."""
    chosen = os.environ.get(GPUS)
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip()]
    return [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


class Submitit:
    """Runs jobs by SLURM, or by submitit's local executor.

    Args:
        folder: The folder for submitit's files.
    """

    def __init__(self, options: Sweep, folder: Path):
        import submitit

        self.executor = submitit.AutoExecutor(folder, cluster="local" if options.launcher == LOCAL else "slurm")
        try:
            self.executor.update_parameters(**{"timeout_min": TIMEOUT_MINUTES, **(options.submitit or {})})
        except (NameError, TypeError, ValueError, AssertionError) as error:
            hint = "use submitit's parameters, such as 'sweep.submitit={timeout_min: 240, slurm_partition: NAME}'"
            raise UserError(f"sweep.submitit: {' '.join(str(error).split())[:200]}", hint=hint) from error
        self.running: dict[str, Any] = {}
        self.lock, self.stopped = threading.Lock(), False

    def run(self, job: TrainJob, log: Path) -> int:
        with self.lock:  # submitit is not thread-safe while it submits
            if self.stopped:
                raise signals.Interrupted
            submitted = self.running[job.folder] = self.executor.submit(job)
        while not submitted.done():
            time.sleep(POLL_SECONDS)
        _copy_output(submitted, log)
        if self.stopped:
            return signals.EXIT_CODE
        error = submitted.exception()
        return 1 if error is not None else int(submitted.result())

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
        for submitted in self.running.values():
            if not submitted.done():
                submitted.cancel()


def _copy_output(submitted: Any, log: Path) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.writelines(text for text in (submitted.stdout(), submitted.stderr()) if text)


def build_launcher(options: Sweep, folder: Path) -> Launcher:
    """Builds the launcher that `sweep.launcher` names."""
    if options.launcher == JOBLIB:
        return Processes(options.num_parallel, visible_gpus())
    return Submitit(options, folder)
