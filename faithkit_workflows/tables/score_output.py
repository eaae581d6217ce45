"""The file that `faithkit score` writes the rows to: a new one, or this run's own, and never another."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.atomic import write_json
from faithkit.files.run_folder import RunFolder
from faithkit.files.strict_json import read_strict_json

RECORD = "output.json"  # in the run's folder: which file outside of it the run has written, and as what it left it
HINT = "choose another name, or delete it"


def check_output(output: str | None, run: RunFolder | None = None) -> None:
    """Refuses a file that is there already and that the run has not written.

    Args:
        run: One that goes on; None where it is new, and has written nothing.

    Raises:
        UserError: It would be lost.
    """
    if output is None or not (path := Path(output).expanduser()).exists():
        return
    if run is None:
        raise UserError("output: this file exists already", place=output, hint=HINT)
    if not _is_own(run, path):
        problem = "output: this file exists already, and is not as this run has written it"
        raise UserError(problem, place=output, hint=f"{HINT}: resume={run.path} output=NAME")


def check_resumed(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Does what `check_output` does for the settings of a run that goes on."""
    check_output(config.get("output"), run)


@contextmanager
def written_by(run: RunFolder, output: str | None) -> Iterator[None]:
    """Records that the run writes the file, before and after, so that it may write it again after any interruption.

    Raises:
        UserError: Someone else has put a file there while the rows were judged.
    """
    if output is None:  # it has its place in the run's folder
        yield
        return
    check_output(output, run)
    path = Path(output).expanduser()
    whole = os.path.realpath(path)
    write_json(run.path / RECORD, {"path": whole, "stamp": None})
    yield
    write_json(run.path / RECORD, {"path": whole, "stamp": _stamp(path)})


def _is_own(run: RunFolder, path: Path) -> bool:
    record = run.path / RECORD
    found = read_strict_json(record, hint="delete it") if record.exists() else None
    if not isinstance(found, Mapping) or found.get("path") != os.path.realpath(path):
        return False
    stamp = found.get("stamp")
    return stamp is None or stamp == _stamp(path)  # it was cut off while it wrote: the file is its own, old or new


def _stamp(path: Path) -> list[int]:
    """Tells the file from one that was edited since; a hash would read all of it again."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]
