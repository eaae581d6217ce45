"""Complete-or-nothing writing: a file or a folder is built beside its place and takes it with one rename.

A reader sees the old content or the new, never half of either, also after a kill or a power cut: what is built is on
the disk itself before it takes its place. Trouble with the disk is told as a `UserError` with a hint.
"""

import errno
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

from faithkit.errors import UserError

# Lone surrogates have no UTF-8; the others end a line for some readers (str.splitlines, JavaScript) though not for us.
_NEEDS_ESCAPES = re.compile("[\x85\u2028\u2029\ud800-\udfff]")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_WRONG_NAME = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP)
_BROKEN = (errno.EIO, errno.EINTR, errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.EMFILE, errno.ENFILE)
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP)  # of file systems that need none or have none
_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST)
_UNFINISHED = (".tmp", ".old")
_QUOTED_ERROR = re.compile(r"\((?:os error )(\d+)\)|\[Errno (\d+)\]")  # of safetensors and tokenizers; of shutil


_SET_BY = ContextVar("set_by", default="run_dir")


@contextmanager
def set_by(key: str) -> Iterator[None]:
    """Names, for hints, the key of the command that says where files go."""
    token = _SET_BY.set(key)
    try:
        yield
    finally:
        _SET_BY.reset(token)


@contextmanager
def disk_errors(path: str | Path) -> Iterator[None]:
    """Tells whatever the system refuses while `path` is written as a `UserError` with a hint."""
    try:
        yield
    except OSError as error:
        if error.errno in (*_FULL, *_FORBIDDEN, *_WRONG_NAME, *_BROKEN):
            raise _explained(error.errno, path) from error
        raise


def _explained(number: int | None, path: str | Path) -> UserError:
    reason = os.strerror(number or errno.EIO).lower()
    problem, hint = f"cannot be written: {reason}", "check the disk; what was there before is untouched"
    if number in _FULL:
        problem = f"no space left on the disk ({reason})"
        hint = f"free some space, or set {_SET_BY.get()} (for the cache: FAITHKIT_HOME) to another disk"
    elif number in _FORBIDDEN:
        problem = f"not allowed to write here ({reason})"
        hint = f"set {_SET_BY.get()} (for the cache: FAITHKIT_HOME) to another place"
    elif number in _WRONG_NAME:
        hint = "choose another path"
    return UserError(problem, place=str(path), hint=hint)


@contextmanager
def _filling_errors(path: Path, folder: Path) -> Iterator[None]:
    """Tells what the system refuses to those who fill `folder`, whose libraries have kinds of errors of their own."""
    try:
        yield
    except Exception as error:
        found = _QUOTED_ERROR.search(str(error))
        number = getattr(error, "errno", None) or (int(found[1] or found[2]) if found else None)
        is_internal = isinstance(error, OSError) and str(error.filename or "").startswith(str(folder))
        if is_internal or number in (*_FULL, errno.EIO):  # what they read from elsewhere may fail for its own reasons
            raise _explained(number, path) from error
        raise


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Opens a file that replaces `path` in one step at the end, and leaves it alone after an error."""
    # A link is followed, so that the file that it names is replaced and not the link.
    target = Path(os.path.realpath(path))
    with disk_errors(path):
        if target.exists() and not target.is_file():  # above all not a device: root could replace /dev/null
            raise UserError("cannot be written: it is no plain file", place=str(path), hint="choose another path")
        temporary, handle = _create(target, lambda new: os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        file = os.fdopen(handle, "wb")
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
            _sync(target.parent)
    except BaseException:  # an interrupt or the end of a generator too: no half of a file stays, and it goes on
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def atomic_folder(path: str | Path, *, replace: bool = False, kept: Path | None = None) -> Iterator[Path]:
    """Gives a folder to fill that becomes `path` in one step at the end, and vanishes after an error.

    Args:
        replace: Whether an older folder or file gives way. Between its end and the new beginning a kill leaves none.
        kept: A free name beside it, which the older one then has in place of being deleted.

    Raises:
        FileExistsError: The place is taken at the end by a folder that is not empty, and `replace` is not set.
    """
    target = Path(os.path.realpath(path))  # a link to a folder is followed
    with disk_errors(path):
        temporary, handle = _create(target, _open_new_folder)
    old = kept or temporary.with_suffix(".old")
    try:
        with _filling_errors(target, temporary):
            yield temporary
        with disk_errors(path):
            for folder, _, names in os.walk(temporary):
                for entry in (*(Path(folder) / name for name in names), Path(folder)):
                    _sync(entry)
        if replace and target.exists():  # a folder cannot replace one that has files in it
            with disk_errors(path):
                target.rename(old)
                if kept is not None:  # its new name is on the disk before another has the old one
                    _sync(target.parent)
        try:
            temporary.rename(target)
        except OSError as error:
            if old.exists():
                old.rename(target)
            if error.errno in _OCCUPIED:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
            raise _explained(error.errno, path) from error
        with disk_errors(path):
            _sync(target.parent)
    finally:
        os.close(handle)
        for leftover in (temporary, old) if target.exists() and kept is None else (temporary,):
            _remove(leftover)


def delete(path: Path) -> None:
    """Deletes a file or a folder; a kill leaves it whole or gone, and what remains of it is cleared the next time."""
    with disk_errors(path):
        if path.parent.exists():
            clear_leftovers(path.parent, f".{path.name[:40]}.")
        if path.is_dir():
            old = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.old")
            path.rename(old)
            try:
                _sync(path.parent)
            finally:
                _remove(old)
        else:
            path.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    """Deletes what has no name to be known by any more, as far as that is allowed."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _open_new_folder(path: Path) -> int:
    path.mkdir()
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        path.rmdir()
        raise


def make_folder(path: str | Path) -> None:
    """Makes a folder and those around it so that they outlive a power cut."""
    path = Path(path)
    with disk_errors(path):
        for folder in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
            folder.mkdir(exist_ok=True)  # another process may be faster
            _sync(folder.parent)


def _create(target: Path, open_new: Callable[[Path], int]) -> tuple[Path, int]:
    """Makes and locks a temporary sibling of `target`, after deleting those that killed processes left behind.

    The lock tells a living writer's temporary from a leftover: it ends with its process, on whichever machine.
    """
    make_folder(target.parent)
    prefix = f".{target.name[:40]}."
    clear_leftovers(target.parent, prefix)
    while True:
        temporary = target.with_name(f"{prefix}{secrets.token_hex(4)}.tmp")
        handle = open_new(temporary)
        with suppress(OSError):  # a file system without locks: nothing there is ever taken for a leftover
            fcntl.flock(handle, fcntl.LOCK_EX)
        if temporary.exists():
            return temporary, handle
        os.close(handle)  # another process took it for a leftover before it was locked


def clear_leftovers(folder: Path, prefix: str = ".") -> None:
    """Deletes what killed processes left half written in the folder; what a living one writes is locked, and stays."""
    with os.scandir(folder) as entries:
        found = [Path(e.path) for e in entries if e.name.startswith(prefix) and e.name.endswith(_UNFINISHED)]
    for leftover in found:
        with suppress(OSError):  # gone meanwhile, in use, or another user's
            handle = os.open(leftover, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if leftover.is_dir():
                    shutil.rmtree(leftover)
                else:
                    leftover.unlink()
            finally:
                os.close(handle)


def sync_entry(path: Path) -> None:
    """Waits until the name of a new file is on the disk: that of its content does not include it."""
    _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if not (path.is_dir() and error.errno in _NO_FOLDER_SYNC):
            raise
    finally:
        os.close(handle)


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Writes JSON that has a UTF-8 form and, without `indent`, is one line for every reader; NaN is refused."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return json.dumps(value, allow_nan=False, indent=indent) if _NEEDS_ESCAPES.search(text) else text


def write_text(path: str | Path, text: str) -> None:
    """Writes a text in UTF-8, replacing the file in one step."""
    data = text.encode()
    with atomic_file(path) as file, disk_errors(path):
        file.write(data)


def write_json(path: str | Path, value: Any) -> None:
    """Writes one JSON document, indented, replacing the file in one step."""
    write_text(path, f"{dumps(value, indent=2)}\n")
