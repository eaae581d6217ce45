"""Runs a script as a process of its own: what trains in one must not leave its memory and threads to the next."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from faithkit.files.run_folder import RUN_DIR_VARIABLE

ROOT = Path(__file__).resolve().parents[2]


def run_script_apart(script: str, arguments: Sequence[str], output: IO[Any] | None = None) -> int:
    """Runs a script to its end and gives its exit code.

    Args:
        script: A command of `faithkit`.
        output: Where what it prints goes; None shows it.
    """
    return run_command([sys.executable, "-m", f"faithkit_workflows.{script}", *arguments], script_environment(), output)


def script_environment(more: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Gives the variables with which a script is run apart: this process's, and more."""
    environ = {name: value for name, value in os.environ.items() if name != RUN_DIR_VARIABLE} | dict(more)
    # A checkout that is not installed is found by its path.
    environ["PYTHONPATH"] = os.pathsep.join(path for path in (environ.get("PYTHONPATH"), str(ROOT)) if path)
    return environ


def run_command(command: Sequence[str], environ: Mapping[str, str], output: IO[Any] | None = None) -> int:
    """Runs a command to its end; where this process is told to stop, the command is told so too, and waited for."""
    errors = subprocess.STDOUT if output else None
    return end_of(subprocess.Popen(list(command), env=dict(environ), stdout=output, stderr=errors))


def end_of(process: "subprocess.Popen[bytes]") -> int:
    """Waits for a process and gives its exit code; where this one is told to stop, it is told so too."""
    try:
        return process.wait()
    except BaseException:  # Ctrl-C and a signal are none of Exception, and are what this is for; it goes on
        process.send_signal(signal.SIGTERM)
        process.wait()
        raise


def quoted(text: str) -> str:
    """Writes a text so that Hydra takes it as it is."""
    if re.fullmatch(r"[\w./-]*[./][\w./-]*", text):  # a path that cannot be read as anything else
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
