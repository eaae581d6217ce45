"""A sweep of train.py: every combination of the given values is a run in a separate folder, and a table ranks the runs.

faithkit train -m optimizer.lr=1e-4,2e-4 seed=1,2
"""

import logging
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, count, islice, product
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from faithkit import signals
from faithkit.cli import SWEEP_VARIABLE
from faithkit.errors import UserError
from faithkit.files.run_folder import RUN_DIR_VARIABLE, RunFolder, is_locked, log_to, run_lock
from faithkit.runs.listing import DONE, FAILED, INTERRUPTED, SweepJob, SweepRecord, chosen_of, read_sweep, write_sweep
from faithkit.runs.reading import State, is_run, read_run
from faithkit.settings.command_line import CommandLine, parse_overrides, sweep_values
from faithkit.settings.config_files import SWEEP_FILE, mark_embedded
from faithkit.targets import find_outside_code

Values = Mapping[str, Sequence[str]]  # of each varied key as it was typed: `optimizer.lr`, `+new.key`
LOGS = "logs"  # the folder for the output of jobs
LOCK_SECONDS = 60  # the longest wait for a job of an earlier command to stop
GPUS = "CUDA_VISIBLE_DEVICES"
log = logging.getLogger("faithkit")
ROOT = Path(__file__).resolve().parents[1]


def sweep(line: CommandLine, processes: "Processes | None" = None) -> None:
    """Runs the sweep of a command line.

    Args:
        processes: What runs the jobs; None makes `sweep.num_parallel` processes.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:  # each of its processes would start the same sweep
        why = "torchrun starts one training, and a sweep starts its trainings itself"
        raise UserError(why, hint="faithkit train -m ... trainer=ddp without torchrun")
    line = stored_command(line)
    tried: list[Any] = []
    line.check_sweep(use=tried.append)
    new, values = read_plan(line)
    for cfg in tried:
        mark_embedded(cfg)
    monitors = {str(cfg.callbacks.monitor) for cfg in tried}
    num_parallel = int(tried[0].sweep.num_parallel)
    new.folder.mkdir(parents=True, exist_ok=True)
    with run_lock(new.folder):
        record, jobs = open_jobs(new, values)
        log_to(record.folder / "sweep.log")
        log.info("%d jobs in %s", len(jobs), record.folder)
        only = monitors.pop() if len(monitors) == 1 else None
        chosen = os.environ.get(GPUS)  # without importing torch
        gpus = [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]
        gpus = gpus if chosen is None else [name for name in chosen.split(",") if name.strip()]
        running = Jobs(record, processes or Processes(num_parallel, gpus), monitor=only, total=len(jobs))
        try:
            running.run([job for job in jobs if job.ended != DONE], num_parallel)
        except signals.Interrupted as error:
            raise signals.Interrupted(f"resume with: faithkit train -m resume={record.folder}") from error
    from faithkit.pages.page_tables import print_tables
    from faithkit_workflows.compare.comparison import rank_sweep
    from faithkit_workflows.compare.comparison_tables import ranking_tables, sweep_lines

    record = running.record
    ranked = rank_sweep(record, [read_run(path) for name in record.jobs if is_run(path := record.folder / name)])
    print_tables(*ranking_tables(ranked))
    print(*sweep_lines(ranked), sep="\n")
    print(f"compare: faithkit report {shlex.quote(f'runs={record.folder}/*')}")
    print(record.folder)
    failed = [job for job in record.jobs.values() if job.ended == FAILED]
    interrupted = [job for job in record.jobs.values() if job.ended in (INTERRUPTED, None)]
    if failed or interrupted:
        counts = [f"{len(failed)} failed"] * bool(failed) + [f"{len(interrupted)} were interrupted"] * bool(interrupted)
        problem = f"of {len(record.jobs)} jobs {' and '.join(counts)}"
        if failed:
            problem += f"; {failed[0].name}: {failed[0].problem}"
        hint = f"fix the problem and resume: faithkit train -m resume={record.folder}; finished jobs are kept"
        raise UserError(problem, place=str(record.folder / LOGS), hint=hint)


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
        hint = "only sweep.num_parallel may change"
        raise UserError(f"a sweep keeps its settings: {' '.join(wrong)}", place=str(folder), hint=hint)
    record = read_sweep(folder)
    stored = record.arguments
    if foreign := find_outside_code([*stored, *(text for job in record.jobs.values() for text in job.overrides)]):
        hint = f"where you trust it, type the whole command again, with run_dir={folder}"
        raise UserError(f"{SWEEP_FILE} names code that is not this project's: {foreign}", place=str(folder), hint=hint)
    replaced = {text.partition("=")[0] for text in others}
    kept = [text for text in stored if text.partition("=")[0] not in replaced]
    return replace(line, arguments=["-m", *kept, *others, f"run_dir={folder}"])


def read_plan(line: CommandLine) -> tuple[SweepRecord, Values]:
    """Reads the record of a new sweep, and its values, from a checked command line."""
    texts = line.overrides
    parsed = {override.key_or_group: override for override in parse_overrides(texts)[0]}
    swept = {key: override for key, override in parsed.items() if override.is_sweep_override()}
    for key in swept:
        if key in ("run_dir", "sweep") or key.startswith("sweep."):
            raise UserError(f"{key} cannot be swept over", hint=f"give {key} one value")
    folder: Any = parsed["run_dir"].value() if "run_dir" in parsed else None
    if isinstance(folder, str) and "${" in folder:
        hint = "name one folder for the whole sweep: its runs get folders in it, named by what differs"
        raise UserError(f"run_dir is {folder!r}", hint=hint)
    values = {str(override.input_line).partition("=")[0]: sweep_values(override) for override in swept.values()}
    keys = tuple(head.lstrip("+") for head in values)
    if not folder:
        shown = "-".join(_short_names(keys).values()) or "one"
        folder = f"runs/{datetime.now():%Y-%m-%d_%H-%M-%S}-sweep-{shown[:60]}"
    arguments = tuple(text for text in texts if text.partition("=")[0] != "run_dir")
    return SweepRecord(folder=Path(folder), arguments=arguments, varied=keys), values


def open_jobs(new: SweepRecord, values: Values) -> tuple[SweepRecord, list[SweepJob]]:
    """Writes the record of a sweep with the jobs that its folder has already; returns it with the jobs of all values.

    Raises:
        UserError: The folder contains another sweep or other files.
    """
    folder, record = new.folder, new
    if (folder / SWEEP_FILE).exists():
        old = read_sweep(folder)
        if sorted(old.varied) != sorted(new.varied) or sorted(old.shared) != sorted(new.shared):
            differs = sorted({*old.shared, *old.varied} ^ {*new.shared, *new.varied})
            raise UserError(
                f"this folder holds another sweep; these differ: {', '.join(differs)[:200]}",
                place=str(folder),
                hint=f"choose another run_dir; or resume the old one: faithkit train -m resume={folder}",
            )
        deleted = [
            job for job in old.jobs.values() if job.ended == DONE and not RunFolder(folder / job.name).metrics.exists()
        ]
        record = replace(new, jobs={**old.jobs, **{job.name: replace(job, ended=None) for job in deleted}})
    elif any(name.name != ".lock" for name in folder.glob("*")):
        raise UserError("run_dir is not empty, and holds no sweep", place=str(folder), hint="choose another")
    names, jobs = dict(record.jobs), []
    short = _short_names([head.lstrip("+") for head in values])
    for combination in product(*values.values()):  # the last key changes first
        settings = dict(zip(values, combination, strict=True))
        job = next((known for known in names.values() if dict(known.settings) == settings), None)
        if job is None:
            parts = (f"{short[head.lstrip('+')]}-{_plain(value)}" for head, value in settings.items())
            stem = "_".join(parts)[:120] or "one"
            numbered = (f"{stem}-{attempt}" for attempt in count(2))
            job = SweepJob(name=next(name for name in chain([stem], numbered) if name not in names), settings=settings)
        names[job.name] = job
        jobs.append(job)
    write_sweep(record)
    return record, jobs


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


class Jobs:
    """The running jobs of one sweep.

    Args:
        record: The record of the sweep; each change is written immediately.
        monitor: The metric that every job must be chosen by; None if jobs may differ.
        total: The total number of jobs.
    """

    def __init__(self, record: SweepRecord, processes: "Processes", *, monitor: str | None, total: int):
        self.record, self.processes = record, processes
        self.monitor, self.total, self.lock = monitor, total, threading.Lock()

    def run(self, jobs: Sequence[SweepJob], num_parallel: int) -> None:
        """Runs all jobs, each when there is room for it; a failed job does not stop the others."""
        (self.record.folder / LOGS).mkdir(exist_ok=True)
        pending, running = iter(jobs), set[Future[None]]()
        with ThreadPoolExecutor(num_parallel) as threads:  # that wait for processes
            try:
                while True:
                    started = islice(pending, num_parallel - len(running))
                    running |= {threads.submit(self._run_job, job) for job in started}
                    if not running:
                        return
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    for each in ended:
                        each.result()
            except BaseException:  # Ctrl-C and signals above all
                self.processes.stop()
                raise

    def _run_job(self, job: SweepJob) -> None:
        folder, output = self.record.folder / job.name, self.record.folder / LOGS / f"{job.name}.log"
        self._write(replace(job, ended=None, problem=None))
        with self.lock:
            number = list(self.record.jobs).index(job.name) + 1
        log.info("job %d of %d, %s", number, self.total, job.name)
        began, code = time.monotonic(), 0
        if read_run(folder).state != State.FINISHED:
            while is_locked(folder) and time.monotonic() - began < LOCK_SECONDS:
                time.sleep(0.5)
            arguments = self.record.command(job)
            # The output of a job is a file.
            quiet = [] if any("progress_bar" in text for text in arguments) else ["callbacks.progress_bar=false"]
            code = self.processes.run(TrainJob(folder=folder, arguments=(*arguments, *quiet)), output)
        seconds = round((job.seconds or 0.0) + time.monotonic() - began, 1)
        ended, problem = DONE, None
        chosen = None if code else chosen_of(read_run(folder))
        if code == signals.EXIT_CODE:
            ended = INTERRUPTED
        elif code:
            problem = f"killed by signal {-code}" + (": perhaps out of memory" if code == -9 else "")
            if code > 0:
                lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
                errors = [line for line in lines if re.match(r"error: |\w*(Error|Exception)\b", line)]
                problem = errors[-1].removeprefix("error: ")[:200] if errors else f"exit code {code}"
        elif chosen is None:
            problem = "it has no validation metric"
        elif self.monitor not in (None, chosen.monitor):
            problem = f"it was chosen by {chosen.monitor}, not {self.monitor}"
        ended = FAILED if problem else ended
        self._write(replace(job, seconds=seconds, ended=ended, problem=problem))
        result = f"{chosen.metric.value:.4f}" if ended == DONE and chosen else problem or ended
        log.info("job %d of %d, %s: %s, after %.0f s", number, self.total, job.name, result, seconds)

    def _write(self, job: SweepJob) -> None:
        with self.lock:
            self.record = replace(self.record, jobs={**self.record.jobs, job.name: job})
            write_sweep(self.record)


@dataclass(frozen=True, slots=True)
class TrainJob:
    """A training that is started or resumed in its folder within the sweep's.

    Args:
        arguments: Of train.py, without run_dir.
    """

    folder: Path
    arguments: tuple[str, ...]

    def command(self) -> list[str]:
        """Returns the command that starts the run or resumes it."""
        module, folder = [sys.executable, "-m", "faithkit_workflows.train"], quote_override(str(self.folder))
        if not (self.folder / "config.yaml").exists():
            return [*module, *self.arguments, f"run_dir={folder}"]
        named = [text for text in self.arguments if text.partition("=")[0].lstrip("+") in ("extensions", "debug")]
        return [*module, f"resume={folder}", *named]


class Processes:
    """Runs jobs on this machine; used by several threads.

    Args:
        gpus: If there are several, each job uses one.
    """

    def __init__(self, num_parallel: int, gpus: Sequence[str]):
        self.slots: queue.SimpleQueue[Mapping[str, str]] = queue.SimpleQueue()  # a job's share of cores and GPUs
        threads = max((os.cpu_count() or 1) // num_parallel, 1)
        cores = {} if num_parallel == 1 or "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(threads)}
        for number in range(num_parallel):
            shared = {GPUS: gpus[number % len(gpus)]} if num_parallel > 1 and len(gpus) > 1 else {}
            self.slots.put(cores | shared)
        self.running: set[subprocess.Popen[bytes]] = set()
        self.lock, self.stopped = threading.Lock(), False

    def run(self, job: TrainJob, log: Path) -> int:
        """Runs a job with its output in `log`, and returns its exit code."""
        slot = self.slots.get()
        environ = script_variables({SWEEP_VARIABLE: job.folder.parent.resolve().name, **slot})
        try:
            with log.open("ab") as output:
                with self.lock:
                    if self.stopped:
                        raise signals.Interrupted
                    # A separate process group: Ctrl-C in the terminal reaches the sweep alone, which stops each job.
                    process = subprocess.Popen(
                        job.command(), env=environ, stdout=output, stderr=subprocess.STDOUT, process_group=0
                    )
                    self.running = {one for one in self.running if one.poll() is None} | {process}
                return process.wait()
        finally:
            self.slots.put(slot)

    def stop(self) -> None:
        """Stops all running jobs and waits for them."""
        with self.lock:
            self.stopped = True
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running:
            process.wait()


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
    """Runs a command and returns its exit code; if this process is interrupted, the command is stopped too."""
    errors = subprocess.STDOUT if output else None
    process = subprocess.Popen(list(command), env=dict(environ), stdout=output, stderr=errors)
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
