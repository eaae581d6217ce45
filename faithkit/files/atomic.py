"""Whole files or none: writing that replaces in one step, and disk trouble told as a `UserError` with a hint."""

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from faithkit.errors import UserError

# Lone surrogates have no UTF-8; the others end a line for some readers (str.splitlines, JavaScript) though not for us.
_NEEDS_ESCAPES = re.compile("[\x85\u2028\u2029\ud800-\udfff]")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_WRONG_NAME = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG)


@contextmanager
def disk_errors(path: str | Path) -> Iterator[None]:
    """Tells a full, missing or forbidden disk under `path` as a `UserError` with a hint."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            hint = "free some space, or set run_dir (for the cache: FAITHKIT_HOME) to another disk"
            raise UserError("no space left on the disk", place=str(path), hint=hint) from error
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            hint = "set run_dir (for the cache: FAITHKIT_HOME) to another place"
            raise UserError("not allowed to write here", place=str(path), hint=hint) from error
        if error.errno in _WRONG_NAME:
            problem = f"cannot be written: {os.strerror(error.errno).lower()}"
            raise UserError(problem, place=str(path), hint="choose another path") from error
        raise


def dumps(value: Any, *, indent: int | None = None) -> str:
    """JSON that always has a UTF-8 form and, without `indent`, is one line for every reader; NaN is refused."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return json.dumps(value, allow_nan=False, indent=indent) if _NEEDS_ESCAPES.search(text) else text


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` in one step at the end, or leaves it alone after an error."""
    # A link is followed, so that the file that it names is replaced and not the link.
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:40]}.{os.getpid()}.tmp")
    with disk_errors(path):
        if target.exists() and not target.is_file():  # above all not a device: root could replace /dev/null
            raise UserError("cannot be written: it is no plain file", place=str(path), hint="choose another path")
        target.parent.mkdir(parents=True, exist_ok=True)
        file = temporary.open("wb")
    try:
        try:
            yield file
            with disk_errors(path):
                file.flush()
                os.fsync(file.fileno())
        finally:
            with disk_errors(path):  # closing writes what is still buffered, and a full disk refuses that too
                file.close()
        with disk_errors(path):
            temporary.replace(target)
            _sync_folder(target.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: str | Path, value: Any) -> None:
    """Writes one JSON document, indented, replacing the file in one step."""
    data = f"{dumps(value, indent=2)}\n".encode()
    with replacing(path) as file, disk_errors(path):
        file.write(data)
