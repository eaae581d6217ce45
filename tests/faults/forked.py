"""Commands in a process forked from this one: as real as any, without the seconds that imports take."""

import importlib
import os
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """How a command ended, and all that it printed."""

    code: int
    output: str


def run_forked(script: str, *arguments: str, at: str | None = None, number: int = signal.SIGTERM) -> Ended:
    """Runs `faithkit SCRIPT ARGUMENTS` to its end.

    Args:
        at: A function, `package.module:Class.name`: when it is called, the process gets the signal first.
    """
    with tempfile.TemporaryFile("w+") as output:
        process = os.fork()
        if process == 0:
            code = 99
            with suppress(BaseException):
                code = _command(script, arguments, at, number, output.fileno())
            os._exit(code)
        _, status = os.waitpid(process, 0)
        output.seek(0)
        return Ended(os.waitstatus_to_exitcode(status), output.read())


def _command(script: str, arguments: tuple[str, ...], at: str | None, number: int, output: int) -> int:
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    sys.argv = [script, *arguments]
    try:
        if at:
            _signal_at(at, number)
        importlib.import_module(f"workflows.{script}").run()
    except SystemExit as error:
        return int(error.code or 0)
    except BaseException:
        traceback.print_exc()
        return 98
    return 0


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
