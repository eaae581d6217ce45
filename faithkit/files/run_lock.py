"""Locks a run's folder, so that one command at a time works in it. The kernel ends the lock with its process."""

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from faithkit.errors import UserError
from faithkit.files.atomic import disk_errors

NAME = ".lock"  # stays in the folder: deleting a lock file lets a third process lock another one of the same name
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

log = logging.getLogger("faithkit")
_held: set[int] = set()


@contextmanager
def run_lock(folder: Path, key: str = "run_dir") -> Iterator[None]:
    """Holds the lock of a run's folder.

    Args:
        key: The setting that names it, for the error.

    Raises:
        UserError: Another process holds it; it is named.
    """
    path = folder / NAME
    with disk_errors(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    _held.add(handle)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
            hint = f"wait for it to end or stop it, or choose another {key}"
            raise UserError(f"{holder} is working in this folder", place=str(folder), hint=hint) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            log.warning("%s: this file system has no locks: let one command at a time work in the folder", folder)
        else:
            with suppress(OSError):  # a full disk: the lock holds without the name of its holder
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        _held.discard(handle)
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Reports whether a command works in a folder now; the lock is tried only where its last holder may still run."""
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        holder = os.pread(handle, 200, 0).decode(errors="replace").split()
        if _has_ended(holder):  # a lock that is tried is held for a moment, in which another command would be refused
            return False
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def _has_ended(holder: list[str]) -> bool:
    match holder:
        case ["process", number, "on", host] if host == socket.gethostname() and number.isdecimal():
            try:
                os.kill(int(number), 0)
            except ProcessLookupError:
                return True
            except (OSError, OverflowError):
                return False
    return False


def _close_inherited() -> None:
    """Closes the handles that a forked process inherits: a loader's worker must not keep the lock of a dead parent."""
    while _held:
        with suppress(OSError):
            os.close(_held.pop())


os.register_at_fork(after_in_child=_close_inherited)
