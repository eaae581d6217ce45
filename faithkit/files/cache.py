"""The cache of everything that can be built again: converted weights, encodings, replies of models.

`FAITHKIT_HOME` moves it, for instance to a disk that all nodes of a cluster share. An entry is a folder that one
process builds while others wait. A hidden file in it lists its files with sizes and CRC-32s; an entry that differs from
its list is built again. CRC-32 detects damage, not attacks: whoever can write to the cache can write a matching list.
It reads 3 GB a second; of files above CHECKED_BYTES only the size is compared.
"""

import json
import logging
import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from faithkit.errors import UserError
from faithkit.files.atomic import atomic_folder, clear_leftovers, disk_errors

CHECKED_BYTES = 4 << 30
CHECKSUMS = ".checksums.json"

T = TypeVar("T")

log = logging.getLogger("faithkit")
_known: dict[tuple[object, ...], int] = {}  # checksums of this process, so that an unchanged file is read once


class DamagedEntry(ValueError):
    """A cache entry that is missing or differs from what was written; the message names the difference."""


def cache_dir(*parts: str) -> Path:
    """Returns a folder of the cache, creating it if necessary.

    The environment is read at each call, so that a test or a notebook can move the cache.

    Args:
        parts: The path below the root of the cache, such as `"weights", "minilm"`.
    """
    root = os.environ.get("FAITHKIT_HOME") or Path.home() / ".cache" / "faithkit"
    folder = Path(root).expanduser().joinpath(*parts)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def cache_entry(folder: Path, build: Callable[[Path], None], read: Callable[[Path], T]) -> T:
    """Reads a cache entry, and builds it first if it is missing or damaged.

    If several processes ask at once, one builds and the others wait.

    Args:
        folder: The entry's path; its name is the key of its content.
        build: Fills the empty folder that it is given.
        read: Reads the folder. Its errors are those of a damaged entry, which checksums do not show of large files;
            a `UserError` is raised as it is.
    """
    try:
        return _read(folder, read)
    except DamagedEntry:
        pass
    with _lock(folder):
        try:
            return _read(folder, read)  # another process may have built it meanwhile
        except DamagedEntry as damage:
            if folder.exists():
                log.warning("%s: %s; building it again", folder, damage)
        if folder.is_file():
            folder.unlink()
        clear_leftovers(folder.parent)  # of all entries: a killed builder's entry may never be requested again
        with atomic_folder(folder, replace=True) as unfinished:
            build(unfinished)
            listed = {"entry": folder.name, "files": _checksums(unfinished)}
            (unfinished / CHECKSUMS).write_text(json.dumps(listed), encoding="utf-8")
        return _read(folder, read)


def _read(folder: Path, read: Callable[[Path], T]) -> T:
    try:
        listed = json.loads((folder / CHECKSUMS).read_bytes())
    except OSError as error:
        raise DamagedEntry("it has no list of checksums") from error
    except (ValueError, RecursionError) as error:
        raise DamagedEntry("its list of checksums is damaged") from error
    try:
        found = _checksums(folder)
    except OSError as error:
        raise DamagedEntry(f"cannot be read: {error.strerror}") from error
    if listed != {"entry": folder.name, "files": found}:
        files = listed.get("files") if isinstance(listed, dict) else None
        if not isinstance(files, dict):
            raise DamagedEntry("its list of checksums is damaged")
        differing = [name for name in {**files, **found} if files.get(name) != found.get(name)]
        problem = f"{differing[0]!r} differs from what was written" if differing else "it belongs to another entry"
        raise DamagedEntry(problem)
    try:
        return read(folder)
    except UserError:  # another build would not correct it
        raise
    except (OSError, ValueError, KeyError) as error:
        raise DamagedEntry(str(error)) from error


def _checksums(folder: Path) -> dict[str, list[int | None]]:
    """Computes size and checksum of every file by its path in the folder, except hidden files."""
    found: dict[str, list[int | None]] = {}
    for path in sorted(path for path in folder.rglob("[!.]*") if path.is_file()):
        status, checksum = path.stat(), 0
        if status.st_size > CHECKED_BYTES:
            found[str(path.relative_to(folder))] = [status.st_size, None]
            continue
        key = (str(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        # Two changes within a second may have the same timestamp.
        if key not in _known or time.time_ns() - status.st_ctime_ns < 1_000_000_000:
            with path.open("rb", buffering=0) as file:
                while block := file.read(1 << 20):
                    checksum = zlib.crc32(block, checksum)
            _known[key] = checksum
        found[str(path.relative_to(folder))] = [status.st_size, _known[key]]
    return found


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Waits for other processes that build entries here; few locks serve all entries, because lock files remain."""
    from filelock import FileLock, Timeout  # imports asyncio, which only a build needs

    with disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.parent / f".{folder.name[:2]}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log.info("waiting for another process that builds %s", folder)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
