"""Commands forked from a process that has imported what they import: on a busy machine that is half of their time.

A command is a process of its own with its own session, and reads its arguments as the script does.
"""

import ctypes
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.forking import ask, read_number, redirect_output, run_script, serve, start_server


class Fork:
    """A command that was forked; it has what is needed of `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], log: Path):
        self._server = server()
        self.returncode: int | None = None
        log.write_bytes(b"")  # else an earlier run would stand before this one
        self.pid = ask(self._server, {"arguments": list(arguments), "log": str(log)})

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None and select.select([self._server.stdout], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self) -> int:
        """Waits for its end."""
        if self.returncode is None:
            self.returncode = read_number(self._server)
        return self.returncode


@cache
def server() -> "subprocess.Popen[bytes]":
    """The process that forks; it works without any hub."""
    environment = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "TOKENIZERS_PARALLELISM": "false"}
    return start_server("tests.paper_smoke.forks", environment)


def end_with_parent() -> None:
    """Has the system kill this process when its parent ends, however that ends."""
    assert ctypes.CDLL(None).prctl(1, signal.SIGKILL) == 0  # PR_SET_PDEATHSIG


def run(asked: dict[str, Any]) -> int:
    """Runs a script in this process, which becomes the first of a session, with its output in a file."""
    os.setsid()
    end_with_parent()
    redirect_output(asked["log"])
    script, *arguments = asked["arguments"]
    return run_script(script.removesuffix(".py"), arguments)


if __name__ == "__main__":
    end_with_parent()
    serve(run)
