"""Writes files and folders atomically: they are built under a temporary name and renamed.

A reader sees the old content or the new, never a part, also after a kill or a power cut: the content is on the disk
before the rename. Errors of the disk become a `UserError` with a hint.

`hash_files` reads files in parallel, and each unchanged file only once per process.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

from faithkit.errors import UserError

# Lone surrogates have no UTF-8; the others end a line for some readers (str.splitlines, JavaScript).
_NEEDS_ESCAPES = re.compile("[\x85\u2028\u2029\ud800-\udfff]")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_WRONG_NAME = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP)
_BROKEN = (errno.EIO, errno.EINTR, errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.EMFILE, errno.ENFILE)
_QUOTED_ERROR = re.compile(r"\((?:os error )(\d+)\)|\[Errno (\d+)\]")  # of safetensors and tokenizers, and of shutil


_SET_BY = ContextVar("set_by", default="run_dir")


@contextmanager
def set_by(key: str) -> Iterator[None]:
    """Sets the command-line key of the output folder for hints."""
    token = _SET_BY.set(key)
    try:
        yield
    finally:
        _SET_BY.reset(token)


@contextmanager
def disk_errors(path: str | Path) -> Iterator[None]:
    """Turns errors of the system while `path` is written into a `UserError` with a hint."""
    try:
        yield
    except OSError as error:
        if error.errno in (*_FULL, *_FORBIDDEN, *_WRONG_NAME, *_BROKEN):
            raise _explained(error.errno, path) from error
        raise


def _explained(number: int | None, path: str | Path) -> UserError:
    reason = os.strerror(number or errno.EIO).lower()
    problem, hint = f"cannot be written: {reason}", "check the disk; the previous content is unchanged"
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
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Opens a file that replaces `path` in one step at the end; after an error `path` is unchanged."""
    # A link is followed: the linked file is replaced, not the link.
    target = Path(os.path.realpath(path))
    with disk_errors(path):
        if target.exists() and not target.is_file():  # root could replace /dev/null
            raise UserError("cannot be written: it is not a regular file", place=str(path), hint="choose another path")
        temporary, handle = _create(target, lambda new: os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        file = os.fdopen(handle, "wb")
    try:
        try:
            yield file
            with disk_errors(path):
                file.flush()
                os.fsync(file.fileno())
        finally:
            with disk_errors(path):  # closing writes the buffer, which may also fail on a full disk
                file.close()
        with disk_errors(path):
            temporary.replace(target)
            sync(target.parent)
    except BaseException:  # also an interrupt or the end of a generator
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def atomic_folder(path: str | Path, *, replace: bool = False, kept: Path | None = None) -> Iterator[Path]:
    """Yields a folder to fill, which becomes `path` in one step at the end and is deleted after an error.

    Args:
        replace: Replaces an older folder or file. A kill between the two renames leaves neither.
        kept: An unused name to which the older one is renamed instead of being deleted.

    Raises:
        FileExistsError: At the end `path` is a folder that is not empty, and `replace` is not set.
    """
    target = Path(os.path.realpath(path))  # a link to a folder is followed

    def open_new(folder: Path) -> int:
        folder.mkdir()
        try:
            return os.open(folder, os.O_RDONLY)
        except OSError:
            folder.rmdir()
            raise

    with disk_errors(path):
        temporary, handle = _create(target, open_new)
    old = kept or temporary.with_suffix(".old")
    try:
        try:
            yield temporary
        except Exception as error:  # libraries use various exception classes
            found = _QUOTED_ERROR.search(str(error))
            number = getattr(error, "errno", None) or (int(found[1] or found[2]) if found else None)
            is_internal = isinstance(error, OSError) and str(error.filename or "").startswith(str(temporary))
            if is_internal or number in (*_FULL, errno.EIO):  # reading from elsewhere may fail for other reasons
                raise _explained(number, target) from error
            raise
        with disk_errors(path):
            for folder, _, names in os.walk(temporary):
                for entry in (*(Path(folder) / name for name in names), Path(folder)):
                    sync(entry)
        if replace and target.exists():  # a folder cannot replace one that has files in it
            with disk_errors(path):
                target.rename(old)
                if kept is not None:  # its new name is on the disk before its old name is used again
                    sync(target.parent)
        try:
            temporary.rename(target)
        except OSError as error:
            if old.exists():
                old.rename(target)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
            raise _explained(error.errno, path) from error
        with disk_errors(path):
            sync(target.parent)
    finally:
        os.close(handle)
        for leftover in (temporary, old) if target.exists() and kept is None else (temporary,):
            _remove(leftover)


def delete(path: Path) -> None:
    """Deletes a file or a folder; after a kill it is complete or gone, and the next call removes what remains."""
    with disk_errors(path):
        if path.parent.exists():
            clear_leftovers(path.parent, f".{path.name[:40]}.")
        if path.is_dir():
            old = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.old")
            path.rename(old)
            try:
                sync(path.parent)
            finally:
                _remove(old)
        else:
            path.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    """Deletes a temporary file or folder, ignoring errors."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def make_folder(path: str | Path) -> None:
    """Creates a folder and its parents durably, so that they survive a power cut."""
    path = Path(path)
    with disk_errors(path):
        for folder in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
            folder.mkdir(exist_ok=True)  # another process may be faster
            sync(folder.parent)


def _create(target: Path, open_new: Callable[[Path], int]) -> tuple[Path, int]:
    """Creates and locks a temporary sibling of `target`, after deleting those of killed processes.

    The lock ends with its process, on any machine, which distinguishes a temporary file in use from a leftover.
    """
    make_folder(target.parent)
    prefix = f".{target.name[:40]}."
    clear_leftovers(target.parent, prefix)
    while True:
        temporary = target.with_name(f"{prefix}{secrets.token_hex(4)}.tmp")
        handle = open_new(temporary)
        with suppress(OSError):  # a file system without locks: leftovers are not recognised
            fcntl.flock(handle, fcntl.LOCK_EX)
        if temporary.exists():
            return temporary, handle
        os.close(handle)  # another process deleted it before it was locked


def clear_leftovers(folder: Path, prefix: str = ".") -> None:
    """Deletes unfinished files of killed processes in the folder; those in use are locked and stay."""
    with os.scandir(folder) as entries:
        found = [Path(e.path) for e in entries if e.name.startswith(prefix) and e.name.endswith((".tmp", ".old"))]
    for leftover in found:
        with suppress(OSError):  # deleted meanwhile, in use, or another user's
            handle = os.open(leftover, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if leftover.is_dir():
                    shutil.rmtree(leftover)
                else:
                    leftover.unlink()
            finally:
                os.close(handle)


def sync(path: Path) -> None:
    """Waits until a file's content, or the names in a folder, are on the disk; a file's content is without its name."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if not (path.is_dir() and error.errno in (errno.EINVAL, errno.ENOTSUP)):
            raise  # but a file system may not sync folders
    finally:
        os.close(handle)


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Returns JSON that is valid UTF-8 and, without `indent`, one line for every reader; NaN is refused."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return json.dumps(value, allow_nan=False, indent=indent) if _NEEDS_ESCAPES.search(text) else text


def write_text(path: str | Path, text: str) -> None:
    """Writes text in UTF-8, replacing the file in one step."""
    data = text.encode()
    with atomic_file(path) as file, disk_errors(path):
        file.write(data)


def write_json(path: str | Path, value: Any) -> None:
    """Writes one JSON document, indented, replacing the file in one step."""
    write_text(path, f"{dumps(value, indent=2)}\n")


_known: dict[tuple[object, ...], str] = {}


def hash_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Hashes files of a folder by name."""
    names = list(names)
    with ThreadPoolExecutor(4) as pool:  # hashing releases Python's lock; few threads saturate a disk
        return dict(zip(names, pool.map(hash_file, (folder / name for name in names)), strict=True))


def hash_file(path: Path) -> str:
    """Hashes a file; one that has not changed since its last hash is not read again."""
    found = path.stat()
    # The change time, which users cannot set, differs even if size and modification time are the same.
    key = (str(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    if key not in _known:
        with path.open("rb") as file:
            _known[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _known[key]
