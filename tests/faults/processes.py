"""Runs commands as processes that are signalled, killed or starved at a chosen place, and several at once."""

import atexit
import ctypes
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.interception import WRITING
from tests.forking import ask, read_number, redirect_output, run_script, serve, start_server

FORK = multiprocessing.get_context("fork")
SECONDS = 60
NAMING = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")  # audit events


class Ended(NamedTuple):
    """The exit code of a command, and all that it printed."""

    code: int
    output: str


def run_forked(
    script: str,
    *arguments: str,
    at: str | None = None,
    number: int = signal.SIGTERM,
    is_powerless: bool = False,
    folder: Path | None = None,
    events: Path | None = None,
    kill_at: int | None = None,
) -> Ended:
    """Runs `faithkit SCRIPT ARGUMENTS` to its end.

    Args:
        at: A function, `package.module:Class.name`: when it is called, the process gets the signal first.
        is_powerless: Takes away what lets root read the files of other users.
        folder: Where it works, with its cache and temporary files.
        events: Gets a line for each change of a file in `folder`.
        kill_at: Kills it before the event with this number.
    """
    with tempfile.NamedTemporaryFile("r", errors="replace") as output:
        asked = {"script": script, "arguments": arguments, "at": at, "number": int(number)}
        asked |= {"is_powerless": is_powerless, "events": events and str(events), "kill_at": kill_at}
        asked |= {"folder": folder and str(folder), "output": output.name, "environ": dict(os.environ)}
        server = _server()
        ask(server, asked)
        return Ended(read_number(server), output.read())


@cache
def _server() -> "subprocess.Popen[bytes]":
    process = start_server("tests.faults.processes", {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"})
    atexit.register(process.kill)
    return process


def _run(asked: dict[str, Any]) -> int:
    redirect_output(asked["output"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    if asked["folder"]:
        _work_in(Path(asked["folder"]))
    if asked["is_powerless"]:
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the capabilities, this process
        assert ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()) == 0
    if asked["events"]:
        _watch(asked["folder"] + os.sep, asked["events"], asked["kill_at"])

    def prepare() -> None:
        if asked["at"]:
            _signal_at(asked["at"], asked["number"])

    return run_script(asked["script"], asked["arguments"], before=prepare)


def _work_in(folder: Path) -> None:
    for variable, name in (("FAITHKIT_HOME", "home"), ("TMPDIR", "tmp")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        os.environ[variable] = str(folder / name)
    tempfile.tempdir = None  # or the server's would stay
    os.chdir(folder)


def _signal_at(at: str, number: int) -> None:
    module, _, names = at.partition(":")
    owner: Any = importlib.import_module(module)
    *groups, name = names.split(".")
    for group in groups:
        owner = getattr(owner, group)
    original = getattr(owner, name)

    def signalled(*args: Any, **options: Any) -> Any:
        setattr(owner, name, original)
        os.kill(os.getpid(), number)
        return original(*args, **options)

    setattr(owner, name, signalled)


def _watch(root: str, log: str, kill_at: int | None) -> None:
    """Logs every change of a file or name below `root`, and ends the process before the one with this number.

    An fsync, and half of a write that goes past Python's buffers, are events too.
    """
    write, fsync = os.write, os.fsync
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    count = 0

    def is_last(name: str, path: Any) -> bool:
        nonlocal count
        count += 1
        write(handle, f"{name} {path}\n".encode(errors="replace"))
        return count == kill_at

    def end() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hook(name: str, args: tuple[Any, ...]) -> None:
        if name not in NAMING and not (name == "open" and isinstance(args[2], int) and args[2] & WRITING):
            return
        path = str(args[0])
        # Names relative to an open folder are those of a tree that is being deleted.
        is_ours = path.startswith(root) or (name in ("os.remove", "os.rmdir") and args[1] != -1)
        if is_ours and is_last(name, path):
            end()

    def path_of(file: int) -> str:
        return os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115

    def watched_fsync(file: int) -> None:
        if path_of(file).startswith(root) and is_last("fsync", path_of(file)):
            end()
        fsync(file)

    def watched_write(file: int, data: Any) -> int:
        if path_of(file).startswith(root) and is_last("write", path_of(file)):
            write(file, bytes(data)[: len(data) // 2])
            end()
        return write(file, data)

    os.fsync, os.write = watched_fsync, watched_write
    sys.addaudithook(hook)


@dataclass(frozen=True)
class Undisturbed:
    """A command to which nothing happened: its file events, and its results."""

    script: str
    overrides: tuple[str, ...]
    events: list[str]
    results: dict[str, bytes]

    @classmethod
    def run(cls, script: str, *overrides: str, folder: Path) -> "Undisturbed":
        """Runs the command once to its end; `run_dir` is added to its overrides."""
        ended, events = run_watched(script, f"run_dir={folder / 'run'}", *overrides, folder=folder)
        assert ended.code == 0, ended.output
        results = read_results(folder / "run")
        assert results and all(results.values())
        return cls(script, overrides, events, results)

    def sample(self, count: int) -> Sequence[int]:
        """Draws numbers of events, spread so that each part of the run has its share."""
        rng, total = random.Random(0), len(self.events)
        return [rng.randint(part * total // count + 1, (part + 1) * total // count) for part in range(count)]


def read_results(run: Path) -> dict[str, bytes]:
    """Reads what must be equal: the predictions, and the figures of metrics.json."""
    found = {path.name: path.read_bytes() for path in sorted((run / "predictions").glob("*.jsonl"))}
    if (run / "metrics.json").exists():
        found["metrics"] = json.dumps(json.loads((run / "metrics.json").read_text())["metrics"]).encode()
    return found


def run_watched(script: str, *overrides: str, folder: Path, kill_at: int | None = None) -> tuple[Ended, list[str]]:
    """Runs a script in a folder; gives how it ended and its file events."""
    log = folder.parent / f"{folder.name}.events"
    log.unlink(missing_ok=True)
    ended = run_forked(script, *overrides, folder=folder, events=log, kill_at=kill_at)
    return ended, log.read_text().splitlines()


def kill_and_resume(whole: Undisturbed, number: int, folder: Path) -> None:
    """Kills a run of the command before its event with this number, and checks that resuming gives the same results.

    Nothing may lie in TMPDIR; where there is nothing to resume, the command itself is given again.
    """
    run = folder / "run"
    first = (f"run_dir={run}", *whole.overrides)
    ended, events = run_watched(whole.script, *first, folder=folder, kill_at=number)
    at = f"killed at event {number}: {(events or ['none'])[-1]}"
    assert ended.code == -signal.SIGKILL, f"{at}: {ended}"
    assert not [path for path in (folder / "tmp").rglob("*") if path.is_file()], at
    again = (f"resume={run}",) if (run / "config.yaml").exists() else first
    ended, _ = run_watched(whole.script, *again, folder=folder)
    assert ended.code == 0, f"{at}: {ended.output[-3000:]}"
    assert read_results(run) == whole.results, f"{at}: other results"
    shutil.rmtree(folder)


def race(work: Callable[[], Any], num_processes: int = 3) -> list[Any]:
    """Does the same work in several forked processes that start at one moment; gives what each returned."""
    barrier, results = FORK.Barrier(num_processes), FORK.SimpleQueue()

    def run() -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads did not survive the fork
        barrier.wait(SECONDS)
        try:
            results.put(("done", work()))
        except BaseException:
            results.put(("failed", traceback.format_exc()))

    processes = [FORK.Process(target=run) for _ in range(num_processes)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
    assert [process.exitcode for process in processes] == [0] * num_processes
    found = [results.get() for _ in processes]
    assert all(state == "done" for state, _ in found), found
    return [result for _, result in found]


def killed_after(seconds: float, work: Callable[[], Any]) -> bool:
    """Does the work in a forked process, and kills that after some seconds; True if it had not ended by then."""
    process = FORK.Process(target=work)
    process.start()
    time.sleep(seconds)
    process.kill()
    process.join(SECONDS)
    return process.exitcode == -signal.SIGKILL


if __name__ == "__main__":
    serve(_run)
