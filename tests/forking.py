"""Runs scripts in forks of a process that has imported what they import: seconds less for each.

The process that forks only imports: it has no threads that a fork could wait for. This one has worked, so it may have.
"""

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tests.running import ROOT, reset_signals

WARM = (
    *("train", "generate", "score", "export", "chat", "construct"),
    *("benchmarks.detection", "benchmarks.responses", "benchmarks.transfer"),
)
HEAVY = (
    *("hydra", "pytorch_lightning", "data_modules.build", "critic.export", "critic.sequence.task"),
    *("transformers.models.bert.modeling_bert", "transformers.models.llama.modeling_llama"),
    *("faithkit.reports.write_reports", "faithkit.training.loggers", "faithkit.training.trainer"),
    *("generation.weights", "generation.generator", "faithkit_workflows.detectors.loading"),
)


def start_server(module: str, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Starts a module that calls `serve`; it ends with this process, which holds its input."""
    command = [sys.executable, "-W", "ignore", "-m", module]
    # Without buffers: a line that was read beside another one would be hidden from `select`.
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, **pipes)


def ask(server: "subprocess.Popen[bytes]", command: Mapping[str, Any]) -> int:
    """Has a command forked; gives the number of its process. The next line of the server is its exit code."""
    assert server.stdin
    server.stdin.write(json.dumps(command).encode() + b"\n")
    return read_number(server)


def read_number(server: "subprocess.Popen[bytes]") -> int:
    """Reads the server's next line."""
    assert server.stdout
    return int(server.stdout.readline())


def serve(run: Callable[[dict[str, Any]], int]) -> None:
    """Imports, then forks a process for each command that is asked for.

    Args:
        run: Carries a command out in the fork and gives its exit code.
    """
    reset_signals()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for name in (*HEAVY, *(f"faithkit_workflows.{name}" for name in WARM)):
        importlib.import_module(name)
    for line in sys.stdin:
        command = json.loads(line)
        process = os.fork()
        if process == 0:
            code = 97
            with suppress(BaseException):
                code = run(command)
            os._exit(code)
        print(process, file=answers)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), file=answers)


def redirect_output(path: str) -> None:
    """Writes what this process prints behind what is in a file, and leaves it nothing to read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)


def run_script(script: str, arguments: Sequence[str], *, before: Callable[[], None] = lambda: None) -> int:
    """Runs a script with arguments in this process, as its command does; gives the exit code.

    Args:
        before: Is called first; an error of it counts as the script's.
    """
    sys.argv = [script, *arguments]
    try:
        before()
        importlib.import_module(f"faithkit_workflows.{script}").run()
    except SystemExit as error:
        return int(error.code or 0)
    except BaseException:
        traceback.print_exc()
        return 98
    return 0
