"""Entries of the cache: folders that one process builds while others wait, and that are built again when damaged.

A hidden file in the folder lists its files with their sizes and CRC-32s. Whatever was cut, emptied, changed or put in
the place of another entry differs from the list, and the entry is made again with one line said. A checksum is for
damage and not for attacks: whoever may write into the cache could write a list to fit. It reads 3 GB a second;
files above CHECKED_BYTES are checked by their size alone.
"""

import json
import logging
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from faithkit.files.atomic import atomic_folder, clear_leftovers, disk_errors

CHECKED_BYTES = 4 << 30
CHECKSUMS = ".checksums.json"
BLOCK = 1 << 20

T = TypeVar("T")

log = logging.getLogger("faithkit")


class Damaged(ValueError):
    """An entry of the cache that is not as it was written; the message says in what."""


def cache_entry(folder: Path, build: Callable[[Path], None], read: Callable[[Path], T]) -> T:
    """Reads an entry of the cache, built first where it is missing or damaged.

    Several processes may ask at once: one builds, the others wait and read.

    Args:
        folder: The entry's place; its name is the key of its content.
        build: Fills the empty folder that it is given.
        read: Reads the folder. It may raise `Damaged`, for what checksums do not see.
    """
    try:
        return _read(folder, read)
    except Damaged:
        pass
    with _lock(folder):
        try:
            return _read(folder, read)  # another process may have built it meanwhile
        except Damaged as damage:
            if folder.exists():
                log.warning("%s: %s; it is made again", folder, damage)
        if folder.is_file():
            folder.unlink()
        clear_leftovers(folder.parent)  # of any entry: the one whose builder was killed may never be asked for again
        with atomic_folder(folder, replace=True) as unfinished:
            build(unfinished)
            listed = {"entry": folder.name, "files": _checksums(unfinished)}
            (unfinished / CHECKSUMS).write_text(json.dumps(listed), encoding="utf-8")
        return _read(folder, read)


def _read(folder: Path, read: Callable[[Path], T]) -> T:
    try:
        listed = json.loads((folder / CHECKSUMS).read_bytes())
    except OSError as error:
        raise Damaged("it has no list of checksums") from error
    except (ValueError, RecursionError) as error:
        raise Damaged("its list of checksums is damaged") from error
    try:
        found = _checksums(folder)
    except OSError as error:
        raise Damaged(f"cannot be read: {error.strerror}") from error
    if listed != {"entry": folder.name, "files": found}:
        raise Damaged(_difference(listed, found))
    return read(folder)


def _difference(listed: Any, found: dict[str, Any]) -> str:
    files = listed.get("files") if isinstance(listed, dict) else None
    if not isinstance(files, dict):
        return "its list of checksums is damaged"
    differing = [name for name in {**files, **found} if files.get(name) != found.get(name)]
    return f"{differing[0]!r} is not as it was written" if differing else "it belongs to another entry"


def _checksums(folder: Path) -> dict[str, list[int | None]]:
    """Size and checksum of every file, by its path in the folder; hidden files do not count."""
    files = sorted(path for path in folder.rglob("[!.]*") if path.is_file())
    return {str(path.relative_to(folder)): _checksum(path) for path in files}


def _checksum(path: Path) -> list[int | None]:
    size, checksum = path.stat().st_size, 0
    if size > CHECKED_BYTES:
        return [size, None]
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            checksum = zlib.crc32(block, checksum)
    return [size, checksum]


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Waits for the others that build entries here; few locks serve all entries, since locks stay behind as files."""
    with disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.parent / f".{folder.name[:2]}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log.info("waiting for another process that makes %s", folder)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
