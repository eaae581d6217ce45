"""Computes SHA-256 of files in parallel, and each unchanged file only once per process."""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS = 4  # hashing releases Python's lock; few threads saturate a disk
_known: dict[tuple[object, ...], str] = {}


def hash_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Hashes files of a folder by name; a file that has not changed since its last hash is not read again."""
    names = list(names)
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(names, pool.map(_hash, (folder / name for name in names)), strict=True))


def _hash(path: Path) -> str:
    found = path.stat()
    # The change time, which users cannot set, differs even if size and modification time are the same.
    key = (str(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    if key not in _known:
        with path.open("rb") as file:
            _known[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _known[key]
