"""Commands as processes of their own, forked from one that has imported what they import: seconds less for each.

That process only imports. This one has worked, so it may have threads, and a fork of it could wait for them for ever.
"""

import atexit
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.file_events import watch
from tests.running import ROOT

WARM = ("train", "detection_benchmark", "response_benchmark", "generate", "score", "export", "chat", "transfer")
HEAVY = (
    "hydra",
    "pytorch_lightning",
    "transformers.models.bert.modeling_bert",
    "transformers.models.llama.modeling_llama",
    "critic.export",
    "critic.task",
    "data_modules.build",
    "faithkit.evaluation.reports.run",
    "faithkit.training.loggers.build",
    "faithkit.training.trainer",
    "generation.export",
    "generation.generator",
    "workflows.detectors",
)


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
        assert server.stdin and server.stdout
        server.stdin.write(json.dumps({**asked, "output": output.name, "environ": dict(os.environ)}) + "\n")
        server.stdin.flush()
        return Ended(int(server.stdout.readline()), output.read())


@cache
def _server() -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.faults.forked"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.kill)
    return process


def serve() -> None:
    """Imports, then forks a process for each command that is asked for."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for name in HEAVY + tuple(f"workflows.{name}" for name in WARM):
        importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        process = os.fork()
        if process == 0:
            code = 97
            with suppress(BaseException):
                code = _run(asked)
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), file=answers)


def _run(asked: dict[str, Any]) -> int:
    handle = os.open(asked["output"], os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    os.environ.clear()
    os.environ.update(asked["environ"])
    if asked["folder"]:
        _work_in(Path(asked["folder"]))
    if asked["powerless"]:
        _drop_capabilities()
    sys.argv = [asked["script"], *asked["arguments"]]
    if asked["events"]:
        watch(asked["folder"] + os.sep, asked["events"], asked["kill_at"])
    try:
        if asked["at"]:
            _signal_at(asked["at"], asked["number"])
        importlib.import_module(f"workflows.{asked['script']}").run()
    except SystemExit as error:
        return int(error.code or 0)
    except BaseException:
        traceback.print_exc()
        return 98
    return 0


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
    serve()
