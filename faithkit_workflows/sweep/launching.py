"""Runs commands of faithkit as separate processes.

A training in a separate process leaves no memory and no threads behind, and does not end the others when it crashes.
"""

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
