"""Checkpoint files: whole or absent after any end, and nothing in them is used before their checksum is compared.

A file is what `torch.save` writes, with one line behind it: the SHA-256 of all before it. `torch.load` overlooks the
line, so other programs read the file as ever.
"""

import errno
import hashlib
import logging
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from pytorch_lightning.plugins.io import CheckpointIO

from faithkit.errors import UserError
from faithkit.files.atomic import atomic_file, delete, disk_errors, sync_entry

LINE = b"\nsha256 %s\n"
LINE_LENGTH = len(LINE % bytes(64))
MARK = "checksum"  # in the checkpoint: a file that has lost its line is not taken for one from before there were lines
BLOCK = 1 << 20
FOLDER = 0x10  # of a zip member's attributes
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS)
_checked: dict[Path, tuple[int, ...]] = {}  # files that are known to be whole, so that none is read twice for it

log = logging.getLogger("faithkit")


class DamagedCheckpoint(UserError):
    """A checkpoint that must not be used."""

    def __init__(self, path: Path, reason: str):
        self.path, self.reason = path, reason
        hint = f"put a copy of it there, or delete {path.parent} and train again"
        super().__init__(f"the checkpoint is cut short or damaged: {reason}", place=str(path), hint=hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.reason)  # processes tell each other


class DurableCheckpoints(CheckpointIO):
    """Writes and reads Lightning's checkpoints by the functions below, under every strategy."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Writes a file.

        Args:
            storage_options: The name that the checkpoint of before gets; None leaves it none.
        """
        path = Path(path)
        if storage_options is not None:
            keep_previous(path, storage_options)
        elif path.is_dir():
            delete(path)  # a file cannot replace it
        write_checkpoint(path, checkpoint)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Reads tensors and plain values alone, whatever `weights_only` says."""
        return dict(read_checkpoint(Path(path), map_location=map_location))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Removes nothing: our files have fixed names. Lightning would remove a path that stands in a checkpoint."""


def write_checkpoint(path: Path, checkpoint: Mapping[str, Any]) -> None:
    """Writes a checkpoint, replacing the file in one step; no copy of it is made in memory or elsewhere."""
    with atomic_file(path) as file:
        hashing: Any = _Hashing(file)
        with disk_errors(path):
            torch.save({**checkpoint, MARK: "sha256"}, hashing)
            if hashing.error is not None:
                raise hashing.error
            file.write(LINE % hashing.digest.hexdigest().encode())


def read_checkpoint(path: Path, *, map_location: Any = "cpu", mmap: bool = False) -> Mapping[str, Any]:
    """Reads a checkpoint, in one file or in parts, as tensors and plain values; nothing in it is executed.

    Raises:
        DamagedCheckpoint: It is damaged, or no checkpoint at all.
        UserError: It may not be read.
        FileNotFoundError: There is none.
    """
    if path.is_dir():
        from faithkit.training.checkpoint_parts import read_parts

        return read_parts(path, map_location=map_location)
    has_line = check_file(path)
    try:
        if not has_line:
            _check_members(path)
        checkpoint = torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
    except Exception as error:  # torch.load raises many kinds at a file that is none of its own
        raise DamagedCheckpoint(path, _first_line(error)) from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise DamagedCheckpoint(path, "it holds no weights")
    if MARK in checkpoint and not has_line:
        raise DamagedCheckpoint(path, "its checksum is missing")
    return checkpoint


def _check_members(path: Path) -> None:
    """Refuses a file without a checksum whose tensors are marked as folders, by a flipped bit say.

    torch reads nothing of such a member, and gives the tensor whatever the memory held before.

    Raises:
        ValueError: One is. What else may be wrong with the file raises as zipfile has it.
    """
    if not zipfile.is_zipfile(path):
        return  # torch.load says what it is
    with zipfile.ZipFile(path) as archive:
        if any(member.external_attr & FOLDER for member in archive.infolist()):
            raise ValueError("a tensor is marked as a folder")


def check_file(path: Path) -> bool:
    """Compares a file with its checksum; False where it has none, as those written before there were checksums.

    Raises:
        DamagedCheckpoint: They differ.
        UserError: It may not be read.
        FileNotFoundError: There is no such file.
    """
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            state = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
            if _checked.get(path) == state:
                return True
            digest, line = _hash(file, max(0, facts.st_size - LINE_LENGTH))
    except (IsADirectoryError, PermissionError) as error:
        raise UserError(
            f"cannot be read: {error.strerror}", place=str(path), hint="make it readable for you"
        ) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedCheckpoint(path, str(error.strerror).lower()) from error
    if not line.startswith(LINE[:8]):
        _check_parts(path)
        return False
    if line != LINE % digest.encode():
        raise DamagedCheckpoint(path, "its checksum differs")
    _checked[path] = state
    return True


def read_checksum(path: Path) -> str:
    """Reads the checksum at a file's end, without a comparison."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LINE_LENGTH))
        return file.read().decode(errors="replace")[len(LINE[:8]) :].strip()


def keep_previous(last: Path, previous: Path) -> None:
    """Gives last.ckpt a second name, which it keeps when the next one takes its place.

    Both names are of one file until then, so that no more of the disk is needed than before. Where a file system knows
    no second names, no previous checkpoint is kept. A folder has no two names: it has the second one at once.
    """
    if not last.exists():
        return
    delete(previous)
    with disk_errors(previous):
        if last.is_dir():
            last.rename(previous)
            sync_entry(previous)
            return
        try:
            os.link(last, previous)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise


def _hash(file: BinaryIO, length: int) -> tuple[str, bytes]:
    """Gives the SHA-256 of the first bytes, and the bytes behind them."""
    digest = hashlib.sha256()
    while length and (block := file.read(min(BLOCK, length))):
        digest.update(block)
        length -= len(block)
    return digest.hexdigest(), file.read()


def _check_parts(path: Path) -> None:
    """Checks a file without a checksum of its own by those of its parts, which `torch.load` itself does not compare."""
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except Exception as error:  # zipfile, too, raises many kinds
        raise DamagedCheckpoint(path, _first_line(error)) from error
    if bad is not None:
        raise DamagedCheckpoint(path, f"the checksum of {bad} differs")
    log.info("%s: written before checkpoints had a checksum; it cannot be checked as a whole", path)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


class _Hashing:
    """Hands on what is written, and hashes it.

    An exception must not pass through the C++ of `torch.save`, be it of the disk or of a signal: it is kept for later.
    """

    def __init__(self, file: BinaryIO):
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
