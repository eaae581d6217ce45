"""Commands as processes of their own that can be signalled, killed or starved at a chosen place."""

import atexit
import ctypes
import importlib
import os
import signal
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.file_events import watch
from tests.forking import ask, read_number, redirect_output, run_script, serve, start_server


class Ended(NamedTuple):
    """The exit code of a command, and all that it printed."""

    code: int
    output: str


def run_forked(
    script: str,
    *arguments: str,
    at: str | None = None,
    number: int = signal.SIGTERM,
    powerless: bool = False,
    folder: Path | None = None,
    events: Path | None = None,
    kill_at: int | None = None,
) -> Ended:
    """Runs `faithkit SCRIPT ARGUMENTS` to its end.

    Args:
        at: A function, `package.module:Class.name`: when it is called, the process gets the signal first.
        powerless: Takes away what lets root read the files of others.
        folder: Where it works, with a cache and temporary files of its own.
        events: Gets a line for each change of a file in `folder`.
        kill_at: Kills it before the event with this number.
    """
    with tempfile.NamedTemporaryFile("r", errors="replace") as output:
        asked = {"script": script, "arguments": arguments, "at": at, "number": int(number), "powerless": powerless}
        asked |= {"folder": folder and str(folder), "events": events and str(events), "kill_at": kill_at}
        server = _server()
        ask(server, {**asked, "output": output.name, "environ": dict(os.environ)})
        return Ended(read_number(server), output.read())


@cache
def _server() -> "subprocess.Popen[bytes]":
    process = start_server("tests.faults.forked", {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"})
    atexit.register(process.kill)
    return process


def _run(asked: dict[str, Any]) -> int:
    redirect_output(asked["output"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    if asked["folder"]:
        _work_in(Path(asked["folder"]))
    if asked["powerless"]:
        _drop_capabilities()
    if asked["events"]:
        watch(asked["folder"] + os.sep, asked["events"], asked["kill_at"])

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


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    assert ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()) == 0


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


def files_of(folder: Path) -> dict[str, bytes]:
    """The predictions that a run has written."""
    return {path.name: path.read_bytes() for path in (folder / "predictions").glob("*.jsonl")}


if __name__ == "__main__":
    serve(_run)
