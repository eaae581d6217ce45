"""What a dataset is to the rest of the system, and how its files become records."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from data_modules.reading.hub import HubSplit
from data_modules.reading.rows import BadRow, ReadReport, Row, read_rows
from faithkit.errors import UserError, shorten
from faithkit.records import Example, Turn

SPLITS = ("train", "validation", "test")
EMBEDDED, HUB = "embedded", "hub"  # values of `path` that are not places on disk
SEEKER, WIZARD = "seeker", "wizard"  # who asks and who answers, in every dialogue dataset

File = Path | HubSplit
Patterns = Mapping[str, Sequence[str]]
Together = Callable[[str, ReadReport], Iterator[Example]]  # a source's method of that name


class Source(Protocol):
    """One dataset: where its rows lie and what records one row gives.

    `path` is a file, a folder, `hub` or `embedded`. `layout()` names the settings that change the records: it is part
    of the cache's key. `examples` yields the records of one raw row and counts what it drops.

    Some things are optional. `ids_repeat = True`: the corpus repeats ids of its own; the repeated ones are made unique
    by their row, and counted. `default_split`: the split to test on where it is not `test`. A method `generate(split,
    start, stop)`: the dataset has no files, and makes its records. A method `read_split(split, report)`: its records
    come of all its files at once, not row by row. `train_only = True`: weak labels, on which nothing may be validated
    or tested. A field `excluded`: it leaves out what `data.exclude` names by itself.
    """

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def files(self) -> Mapping[str, Sequence[File]]: ...

    def layout(self) -> Mapping[str, Any]: ...

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]: ...


def find_files(path: str, *layouts: Patterns, address: str = "") -> dict[str, list[Path]]:
    """The files of each split: a folder is searched by the official names, a single file is named by its own split.

    The folder may be the one above: where it has none of the files itself, its folders are searched, and exactly one
    must have some.

    Args:
        path: A file or folder.
        layouts: Official file names by split, as glob patterns relative to the folder. The first layout of which the
            folder has any file is used alone.
        address: Where the official files can be had, told when they are not here.

    Returns:
        Split to files, only for splits that are there. A file of an unknown name stands under `all`.
    """
    if path in (HUB, EMBEDDED):
        problem = "is not read from the hub" if path == HUB else "is not in the embedded corpus"
        raise UserError(f"this dataset {problem}", place=f"path={path}", hint=_hint("set data.path=FOLDER", address))
    root = Path(path).expanduser()
    if root.is_file():
        every = [(split, name) for patterns in layouts for split, names in patterns.items() for name in names]
        whole = [split for split, name in every if root.match(name)]
        owners = whole or [split for split, name in every if root.match(Path(name).name)]
        return {owners[0] if owners else "all": [root]}
    if not root.is_dir():
        raise UserError("no such file or folder", place=str(root), hint="set data.path (or benchmark.path) to it")
    if found := _search(root, layouts):
        return found
    below = {folder: _search(folder, layouts) for folder in sorted(root.iterdir()) if folder.is_dir()}
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
            if files := sorted({file for name in names for file in root.glob(name) if file.is_file()}):
                found[split] = files
        if found:
            return found
    return {}


def _hint(what: str, address: str) -> str:
    return f"{what}; the official files: {address}" if address else what


def resolve_split(source: Source, split: str | None) -> str:
    """The split to read: the one asked for; without one, the source's default, or the only split there is."""
    files = source.files()
    if split is None:
        default = getattr(source, "default_split", "test")
        split = next(iter(files)) if len(files) == 1 else default
    if split not in files:
        have = ", ".join(files)
        raise UserError(f"{source.name} has no split {split!r} here", place=source.path, hint=f"choose from: {have}")
    return split


def read_examples(
    source: Source, split: str | None, report: ReadReport, num_rows: int | None = None
) -> Iterator[Example]:
    """The records of one split (the first `num_rows` after filtering), checked: built rightly, ids unique.

    Args:
        split: None for the source's default (test, for most), or for the only split that is there.

    Raises:
        UserError: A bad row under `on_bad_row=stop`, a missing split, or nothing left.
    """
    if num_rows is not None and num_rows < 1:
        raise UserError(f"num_rows is {num_rows}", hint="give 1 or more, or null for all")
    if generate := getattr(source, "generate", None):
        for example in generate(split or "test", 0, num_rows):
            report.count("kept")
            yield example
        return
    split = resolve_split(source, split)
    if read_split := getattr(source, "read_split", None):
        for example in islice(read_split(split, report), num_rows):
            report.count("kept")
            yield example
        if not report.counts["kept"]:
            raise _nothing_left(source, split, report)
        return
    seen: dict[bytes, str] = {}
    kept = 0
    for file in source.files()[split]:
        for row in read_rows(file, report) if isinstance(file, Path) else file.rows():
            for example in _guarded(source, row, split, report):
                if getattr(source, "ids_repeat", False) and _digest(example.id) in seen:
                    report.count("repeated id, made unique by its row")
                    example = replace(example, id=f"{example.id}@{row.default_id}")
                digest = _digest(example.id)
                if digest in seen:
                    duplicate = BadRow(f"id {shorten(example.id)} was already given by {seen[digest]}")
                    report.reject(row.file, row.line, duplicate, row.values)
                    continue
                seen[digest] = row.place
                kept += 1
                report.count("kept")
                yield example
                if kept == num_rows:
                    return
    if not kept:
        raise _nothing_left(source, split, report)


def _digest(example_id: str) -> bytes:
    # Digests instead of ids: a fifth of the memory on corpora with long ids.
    return hashlib.blake2b(example_id.encode(errors="surrogatepass"), digest_size=12).digest()


def _guarded(source: Source, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
    try:
        yield from list(source.examples(row, split, report))
    except BadRow as error:
        report.reject(row.file, row.line, error, row.values)
    except UserError:
        raise
    except ValueError as error:  # a record that refused to be built: Example checks itself
        report.reject(row.file, row.line, BadRow(str(error)), row.values)


def _nothing_left(source: Source, split: str, report: ReadReport) -> UserError:
    counts = ", ".join(f"{name} {count}" for name, count in report.counts.items()) or "no rows"
    problem = f"{source.name} has no usable example in split {split!r} ({counts})"
    if not report.rejects:
        return UserError(problem, place=source.path, hint="check that these are the right files, and the switches")
    first = report.rejects[0]
    return UserError(problem, place=f"{first['file']}, line {first['line']}", hint=f"first problem: {first['problem']}")


def text_group(text: str) -> str:
    """A group's name from a text: the same for texts that differ in case, white space and punctuation alone.

    BEGIN's four models had one source tokenised in different ways ("end." and "end .").
    """
    kept = "".join(character for character in text.lower() if character.isalnum()) or text
    return hashlib.blake2b(kept.encode(), digest_size=12).hexdigest()


def alternate(texts: Sequence[str]) -> tuple[Turn, ...]:
    """A history in which two take turns and the seeker spoke last."""
    speakers = (SEEKER, WIZARD)
    return tuple(Turn(speaker=speakers[(len(texts) - 1 - i) % 2], text=text) for i, text in enumerate(texts))
