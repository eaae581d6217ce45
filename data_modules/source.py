"""What a dataset is to the rest of the system, and how its files become records."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from common.errors import UserError
from common.records import Example
from data_modules.rows import BadRow, ReadReport, Row, read_rows

SPLITS = ("train", "validation", "test")
EMBEDDED, HUB = "embedded", "hub"  # values of `path` that are not places on disk


class Source(Protocol):
    """One dataset: where its rows lie and what records one row gives.

    `path` is a file, a folder, `hub` or `embedded`. `layout()` names the settings that change the records: it is part
    of the cache's key. `examples` yields the records of one raw row and counts what it drops.
    """

    name: str
    path: str

    def files(self) -> Mapping[str, Sequence[Path]]: ...

    def layout(self) -> Mapping[str, Any]: ...

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]: ...


def find_files(path: str, patterns: Mapping[str, Sequence[str]]) -> dict[str, list[Path]]:
    """The files of each split: a folder is searched by the official names, a single file is named by its own split.

    Args:
        path: A file or folder.
        patterns: For each split its official file names, as glob patterns relative to the folder.

    Returns:
        Split to files, only for splits that are there. A file of an unknown name stands under `all`.
    """
    root = Path(path).expanduser()
    if root.is_file():
        owners = [split for split, names in patterns.items() if any(root.match(name) for name in names)]
        return {owners[0] if owners else "all": [root]}
    if not root.is_dir():
        raise UserError("no such file or folder", place=str(root), mend="set data.path (or benchmark.path) to it")
    found = {}
    for split, names in patterns.items():
        files = sorted({file for name in names for file in root.glob(name) if file.is_file()})
        if files:
            found[split] = files
    if not found:
        wanted = ", ".join(name for names in patterns.values() for name in names)
        raise UserError("none of the dataset's files is here", place=str(root), mend=f"looked for: {wanted}")
    return found


def read_examples(source: Source, split: str, report: ReadReport, num_rows: int | None = None) -> Iterator[Example]:
    """The records of one split (the first `num_rows` after filtering), checked: built rightly, ids unique.

    Raises:
        UserError: A bad row under `on_bad_row=stop`, a missing split, or nothing left.
    """
    files = source.files()
    if split not in files:
        have = ", ".join(files)
        raise UserError(f"{source.name} has no split {split!r} here", place=source.path, mend=f"choose from: {have}")
    seen: dict[bytes, str] = {}
    kept = 0
    for file in files[split]:
        for row in read_rows(file, report):
            for example in _guarded(source, row, split, report):
                # Digests instead of ids: a fifth of the memory on corpora with long ids.
                digest = hashlib.blake2b(example.id.encode(errors="surrogatepass"), digest_size=12).digest()
                if digest in seen:
                    duplicate = BadRow(f"id {example.id!r} was already given by {seen[digest]}")
                    report.reject(row.file, row.line, duplicate, row.values)
                    continue
                seen[digest] = row.place
                kept += 1
                report.count("kept")
                yield example
                if kept == num_rows:
                    return
    if not kept:
        counts = ", ".join(f"{name} {count}" for name, count in report.counts.items()) or "no rows"
        raise UserError(f"{source.name} has no usable example in split {split!r} ({counts})", place=source.path)


def _guarded(source: Source, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
    try:
        yield from list(source.examples(row, split, report))
    except BadRow as error:
        report.reject(row.file, row.line, error, row.values)
    except ValueError as error:  # a record that refused to be built: Example checks itself
        report.reject(row.file, row.line, BadRow(str(error)), row.values)
