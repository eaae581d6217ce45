"""Commands forked from a process that has imported what they import: on a busy machine that is half of their time.

A command is a process of its own with its own session, and reads its arguments as the script does. The process that
forks only imports: it has no threads that a fork could wait for.
"""

import ctypes
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.running import ROOT


class Fork:
    """A command that was forked; it has what is needed of `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], log: Path):
        self._server = server()
        assert self._server.stdin and self._server.stdout
        self.returncode: int | None = None
        self._server.stdin.write(json.dumps({"arguments": list(arguments), "log": str(log)}).encode() + b"\n")
        self.pid = int(self._server.stdout.readline())

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        assert self._server.stdout
        if self.returncode is None and select.select([self._server.stdout], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self) -> int:
        """Waits for its end."""
        assert self._server.stdout
        if self.returncode is None:
            self.returncode = int(self._server.stdout.readline())
        return self.returncode


@cache
def server() -> "subprocess.Popen[bytes]":
    """The process that forks; it ends with this one, which holds its input."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.paper_smoke.forks"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "TOKENIZERS_PARALLELISM": "false"}
    # Without buffers: a line that was read beside another one would be hidden from `select`.
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    return subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)


def serve() -> None:
    """Imports, then forks a process for each command that is asked for."""
    from tests.faults.forked import HEAVY, WARM

    end_with_parent()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for name in HEAVY + tuple(f"workflows.{name}" for name in WARM):
        importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        process = os.fork()
        if process == 0:
            code = 97
            with suppress(BaseException):
                code = run(asked["arguments"], asked["log"])
            os._exit(code)
        print(process, file=answers)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), file=answers)


def end_with_parent() -> None:
    """Has the system kill this process when its parent ends, however that ends."""
    assert ctypes.CDLL(None).prctl(1, signal.SIGKILL) == 0  # PR_SET_PDEATHSIG


def run(arguments: Sequence[str], log: str) -> int:
    """Runs a script in this process, which becomes the first of a session, with its output in a file."""
    os.setsid()
    end_with_parent()
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    script = arguments[0].removesuffix(".py")
    sys.argv = [script, *arguments[1:]]
    try:
        importlib.import_module(f"workflows.{script}").run()
    except SystemExit as error:
        return int(error.code or 0)
    except BaseException:
        traceback.print_exc()
        return 98
    return 0


if __name__ == "__main__":
    serve()
