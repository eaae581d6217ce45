"""Finding a dataset's official files in a folder."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePath
from typing import BinaryIO, Protocol

from data_modules.reading.rows import ReadReport, Row, read_rows
from data_modules.reading.saved_datasets import parse_parquet
from faithkit.errors import UserError
from faithkit.settings.config_files import EMBEDDED

HUB = "hub"  # a value of `path` that is not a place on disk, like EMBEDDED
log = logging.getLogger("faithkit")
MAGIC = re.compile(r"[*?\[]")


class RowsFile(Protocol):
    """Rows that are used like the path of a file: a split on the hub, a saved split, a shard of another file system."""

    @property
    def name(self) -> str:
        """Its name as a file would have one: ids are made of it."""
        ...

    def open(self, mode: str = "rb") -> BinaryIO:
        """Bytes that change when the content changes: the encodings' key reads them as it reads a file's."""
        ...

    def rows(self) -> Iterator[Row]:
        """Yields the rows in their order."""
        ...


File = Path | RowsFile
Patterns = Mapping[str, Sequence[str]]


def rows_of(file: File, report: ReadReport) -> Iterator[Row]:
    """Yields the rows of a file on disk, of a split on the hub or of a saved one."""
    if not isinstance(file, Path):
        return file.rows()
    return read_rows(file, report, parse_parquet if file.suffix == ".parquet" else None)


def find_files(path: str, *layouts: Patterns, address: str = "") -> dict[str, list[Path]]:
    """Returns the files of each split: a folder is searched by the official names, a file gets the split of its name.

    The folder may be the one above: where it has none of the files itself, its folders are searched, and exactly one
    must have some. Names that begin with a dot or `_` are ignored, as in `find_shards`: editors and Macs leave
    copies under such.

    Args:
        path: A file or folder.
        layouts: Official file names by split, as glob patterns relative to the folder. The first layout of which the
            folder has any file is used alone.
        address: Of the official files, for the error if they are missing.

    Returns:
        Split to files, only for splits that are there. A file of an unknown name belongs to `all`.
    """
    if path in (HUB, EMBEDDED):
        problem = "is not read from the hub" if path == HUB else "is not in the embedded corpus"
        raise UserError(f"this dataset {problem}", place=f"path={path}", hint=_hint("set data.path=FOLDER", address))
    root = Path(path).expanduser()
    if root.is_file():
        # The split of the first pattern that matches the file's path, else its name, else `all`.
        patterns = [(split, name) for layout in layouts for split, names in layout.items() for name in names]
        by_path = [split for split, name in patterns if root.match(name)]
        by_name = [split for split, name in patterns if root.match(Path(name).name)]
        return {next(iter(by_path or by_name), "all"): [root]}
    if not root.is_dir():
        raise UserError("no such file or folder", place=str(root), hint="set data.path (or benchmark.path) to it")
    if found := _search(root, layouts):
        return found
    below = {
        folder: _search(folder, layouts)
        for folder in sorted(root.iterdir())
        if folder.is_dir() and not is_hidden(folder.relative_to(root))
    }
    having = [folder for folder, found in below.items() if found]
    if len(having) == 1:
        return below[having[0]]
    if having:
        names = ", ".join(folder.name for folder in having[:8])
        raise UserError(f"several folders have such files: {names}", place=str(root), hint="set data.path to one")
    wanted = dict.fromkeys(name for patterns in layouts for names in patterns.values() for name in names)
    hint = _hint(f"looked for {', '.join(wanted)}", address)
    raise UserError("none of the dataset's files is here", place=str(root), hint=hint)


def _search(root: Path, layouts: Sequence[Patterns]) -> dict[str, list[Path]]:
    for patterns in layouts:
        found = {}
        for split, names in patterns.items():
            files = {file for name in names for file in root.glob(name) if file.is_file()}
            if seen := sorted(file for file in files if not is_hidden(file.relative_to(root))):
                found[split] = seen
        if found:
            return found
    return {}


@cache  # files are looked for several times
def log_missing(path: str, names: Sequence[str], found: Sequence[PurePath], address: str) -> None:
    """Logs once which files of a release a folder lacks; a part of them is read without an error."""
    missing = [name for name in names if not any(file.match(name) for file in found)]
    if missing and Path(path).expanduser().is_dir():
        log.info("%s: not here: %s; the official files: %s", path, ", ".join(missing), address)


def _hint(hint: str, address: str) -> str:
    return f"{hint}; the official files: {address}" if address else hint


def is_hidden(path: PurePath) -> bool:
    """Returns whether a path below the folder of the data has a name that begins with a dot or `_`."""
    return any(part.startswith((".", "_")) for part in path.parts)


def is_address(data: str) -> bool:
    """Returns whether data is an fsspec address (`s3://...`) rather than a path of this machine."""
    return "://" in data


def is_glob(data: str) -> bool:
    """Returns whether data is a pattern of paths, and no file has that name."""
    return bool(MAGIC.search(data)) and not Path(data).expanduser().exists()
