"""Runs a script as a process of its own: what trains in one must not leave its memory and threads to the next."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from faithkit.files.run_folder import RUN_DIR_VARIABLE

ROOT = Path(__file__).resolve().parent.parent


def run_script_apart(script: str, arguments: Sequence[str], output: IO[Any] | None = None) -> int:
    """Runs a script to its end and gives its exit code.

    Args:
        script: A command of `faithkit`.
        output: Where what it prints goes; None shows it.
    """
    environ = {name: value for name, value in os.environ.items() if name != RUN_DIR_VARIABLE}
    # A checkout that is not installed is found by its path.
    environ["PYTHONPATH"] = os.pathsep.join(path for path in (environ.get("PYTHONPATH"), str(ROOT)) if path)
    return run_command([sys.executable, "-m", f"workflows.{script}", *arguments], environ, output)


def run_command(command: Sequence[str], environ: Mapping[str, str], output: IO[Any] | None = None) -> int:
    """Runs a command to its end; where this process is told to stop, the command is told so too, and waited for."""
    errors = subprocess.STDOUT if output else None
    process = subprocess.Popen(list(command), env=dict(environ), stdout=output, stderr=errors)
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
