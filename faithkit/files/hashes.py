"""SHA-256 of files: a file is hashed once a process as long as it stays as it is, large ones side by side."""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS = 4  # hashing leaves Python's lock alone; a disk is rarely faster than a few of them
_known: dict[tuple[object, ...], str] = {}


def hash_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Hashes files of a folder by their names; what was hashed before and has not changed is not read again."""
    names = list(names)
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(names, pool.map(_hash, (folder / name for name in names)), strict=True))


def _hash(path: Path) -> str:
    found = path.stat()
    # A changed file has another time of change, which no user can set, even where its size and its date are the same.
    key = (str(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    if key not in _known:
        with path.open("rb") as file:
            _known[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _known[key]
