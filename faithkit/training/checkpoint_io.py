"""Writes and reads checkpoint files: complete or absent after a crash, verified by checksum before they are used.

A file is what `torch.save` writes, followed by one line with the SHA-256 of everything before it. `torch.load` ignores
that line, so other programs can read the file.
"""

import errno
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from faithkit.errors import UserError
from faithkit.files.atomic import atomic_file, delete, disk_errors, sync

CHECKSUM_LINE = b"\nsha256 %s\n"
LINE_LENGTH = len(CHECKSUM_LINE % bytes(64))
_verified: dict[Path, tuple[int, ...]] = {}  # inode, size and time of verified files, so that none is hashed twice


class DamagedCheckpoint(UserError):
    """A checkpoint that must not be used."""

    def __init__(self, path: Path, reason: str):
        self.path, self.reason = path, reason
        hint = f"put a copy of it there, or delete {path.parent} and train again"
        super().__init__(f"the checkpoint is cut short or damaged: {reason}", place=str(path), hint=hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.reason)  # processes send it to each other


def write_checkpoint(path: Path, checkpoint: Mapping[str, Any]) -> None:
    """Writes a checkpoint and replaces the file in one step; no copy is made in memory or on disk."""
    with atomic_file(path) as file:
        hashing: Any = _HashingFile(file)
        with disk_errors(path):
            torch.save(dict(checkpoint), hashing)
            if hashing.error is not None:
                raise hashing.error
            file.write(CHECKSUM_LINE % hashing.digest.hexdigest().encode())


def read_file(path: Path, *, map_location: Any = "cpu", mmap: bool = False) -> dict[str, Any]:
    """Reads a checkpoint file as tensors and plain values; nothing in it is executed.

    Raises:
        DamagedCheckpoint: It is damaged, or not a checkpoint.
        UserError: It cannot be read.
        FileNotFoundError: It does not exist.
    """
    verify_file(path)
    try:
        checkpoint = torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
    except Exception as error:  # torch.load raises many classes for a malformed file
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise DamagedCheckpoint(path, reason) from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise DamagedCheckpoint(path, "it holds no weights")
    return checkpoint


def verify_file(path: Path) -> None:
    """Compares a file with its checksum.

    Raises:
        DamagedCheckpoint: They differ, or the checksum is missing.
        UserError: The file cannot be read.
        FileNotFoundError: It does not exist.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            version = (status.st_ino, status.st_size, status.st_mtime_ns)
            if _verified.get(path) == version:
                return
            digest, unread = hashlib.sha256(), max(0, status.st_size - LINE_LENGTH)
            while unread and (block := file.read(min(1 << 20, unread))):
                digest.update(block)
                unread -= len(block)
            line = file.read()
    except (IsADirectoryError, PermissionError) as error:
        problem, hint = f"cannot be read: {error.strerror}", "change its permissions"
        raise UserError(problem, place=str(path), hint=hint) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedCheckpoint(path, str(error.strerror).lower()) from error
    if line != CHECKSUM_LINE % digest.hexdigest().encode():
        is_missing = not line.startswith(CHECKSUM_LINE[:8])
        raise DamagedCheckpoint(path, "its checksum is missing" if is_missing else "its checksum differs")
    _verified[path] = version


def keep_previous(last: Path, previous: Path) -> None:
    """Gives last.ckpt a second name, under which it stays when a new file replaces it.

    A hard link needs no additional space on the disk. On a file system without hard links no previous checkpoint is
    kept. A folder cannot have two names: it is renamed.
    """
    if not last.exists():
        return
    delete(previous)
    with disk_errors(previous):
        if last.is_dir():
            last.rename(previous)
            sync(previous.parent)
            return
        try:
            os.link(last, previous)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
                raise


class _HashingFile:
    """Passes written data on to a file, and hashes it.

    An exception, of the disk or of a signal, must not pass through the C++ code of `torch.save`: it is kept for later.
    """

    def __init__(self, file: Any):
        self.file, self.digest = file, hashlib.sha256()
        self.error: BaseException | None = None

    def write(self, data: Any) -> int:
        if self.error is None:
            try:
                self.digest.update(data)
                self.file.write(data)
            except BaseException as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        """Does nothing: the file is flushed once, at its end."""
