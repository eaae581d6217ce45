"""The interface of a dataset, reading the checked records of one of its splits, and datasets that wrap another one.

A wrapper changes one thing and forwards everything else.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any, ClassVar

from data_modules.reading.exclude import Excluded
from data_modules.reading.fields import ANY, chosen
from data_modules.reading.files import HUB, File, Patterns, find_files, rows_of
from data_modules.reading.rows import BadRow, ReadReport, Row
from faithkit.errors import UserError, shorten
from faithkit.records import Example

SPLITS = ("train", "validation", "test")
# The fields of `meta` that name the part of its dataset that a row is in.
PARTS = ("scenario", "task", "domain", "set", "language", "corpus", "data_source", "style", "genre")

# Records with their rows: None if the dataset has already checked the id to be unique.
Records = Iterator[tuple[Example, Row | None]]


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """A dataset: where its files lie, and which records they give.

    A dataset is a frozen dataclass that inherits from this one; its fields are its options. It must have a `name`,
    `official_files` or `files`, and `examples` (the records of one row) or `read_split` (where records depend on
    several rows or files). The rest has defaults.

    Args:
        path: A file, a folder, `hub` or `embedded`.

    Attributes:
        name: The dataset's name in records, reports and metrics.
        official_files: File names by split, in each of the corpus's layouts (`reading.files.find_files`).
        address: Of the official files, for errors.
        hub_splits: What `path=hub` reads of each split.
        default_split: The split to test on.
        ids_repeat: The corpus repeats ids: repeated ones are made unique by their row, and counted.
        train_only: The labels are weak: nothing may be validated or tested on them.
        generated: Records are made on demand: there are no files, and `path` is not an option.
        embedded_layout: The writer of the embedded corpus (`embedded.layouts.WRITERS`) that `path=embedded` uses.
        embedded_options: The same for further options that are paths: option to writer.
        derived_from: The dataset that this one is made from. It takes the `path`, and is passed as the source `of`; a
            configuration may name another one: `of: {dataset: NAME}`.
        files_stand_alone: Each file gives its records without the others, by `read_file`: they can be read as shards.
        options_for_all_rows: Options under which no row is left out: `data.exclude` reads test sets with them, since a
            row that scoring leaves out is part of the test set nevertheless.
        option_values: The possible values of options that have only a few.
        option_names: The possible names of options that take one, a list or `all`.
    """

    name: ClassVar[str] = ""
    official_files: ClassVar[Sequence[Patterns]] = ()
    address: ClassVar[str] = ""
    hub_splits: ClassVar[Mapping[str, File]] = {}
    default_split: ClassVar[str] = "test"
    ids_repeat: ClassVar[bool] = False
    train_only: ClassVar[bool] = False
    generated: ClassVar[bool] = False
    embedded_layout: ClassVar[str | None] = None
    embedded_options: ClassVar[Mapping[str, str]] = {}
    derived_from: ClassVar[str | None] = None
    files_stand_alone: ClassVar[bool] = False
    options_for_all_rows: ClassVar[Mapping[str, Any]] = {}
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {}
    option_names: ClassVar[Mapping[str, Sequence[str]]] = {}
    path: str

    def __post_init__(self) -> None:
        for option, values in self.option_values.items():
            value = getattr(self, option)
            if not any(type(value) is type(each) and value == each for each in values):
                shown = [str(each).lower() if isinstance(each, bool) else each for each in values]
                hint = f"use {', '.join(shown[:-1])} or {shown[-1]}"
                raise UserError(f"{option} is {value!r}", hint=hint)
        for option, names in self.option_names.items():
            given = chosen(getattr(self, option), option)
            if not given or given - {ANY, *map(str.lower, names)}:
                hint = f"use {ANY}, {', '.join(names)}, or a list of them"
                raise UserError(f"{option} is {getattr(self, option)!r}", hint=hint)

    def files(self) -> Mapping[str, Sequence[File]]:
        """Returns the files of each split that is there: all files that its records depend on."""
        if self.path == HUB and self.hub_splits:
            return {split: [file] for split, file in self.hub_splits.items()}
        return find_files(self.path, *self.official_files, address=self.address)

    def with_all_rows(self, given: Collection[str] = ()) -> "Source":
        """Returns the dataset with the rows that scoring leaves out, unless options are given that say otherwise."""
        return replace(self, **{name: one for name, one in self.options_for_all_rows.items() if name not in given})

    def check(self) -> None:
        """Refuses what can be seen before anything is loaded: by default that there are no files.

        Raises:
            UserError: The dataset cannot be read.
        """
        self.files()

    def split_names(self) -> list[str]:
        """Returns the names of the splits that are there."""
        return list(self.files())

    def sizes(self) -> Mapping[str, int] | None:
        """Returns the number of records of each split; None if only reading shows it."""
        return None

    def layout(self) -> Mapping[str, Any]:
        """Returns the settings that change the records, for the cache key: all options but the path."""
        settings = {option.name: getattr(self, option.name) for option in fields(self) if option.name != "path"}
        return {**settings, **{option: sorted(chosen(settings[option])) for option in self.option_names}}

    def _reads(self, option: str, name: str, report: ReadReport) -> bool:
        """Returns whether an option that names what to read names this; what it leaves out is counted."""
        is_read = bool(chosen(getattr(self, option)) & {ANY, name.lower()})
        if not is_read:
            report.count(f"dropped: {option.removesuffix('s')} {name}")
        return is_read

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        """Yields the records of one row; what is dropped is counted in the report."""
        raise AssertionError(f"{self.name} is read by read_split alone")

    def read_row(self, row: Row, split: str, report: ReadReport) -> list[Example]:
        """Returns the records of one row; none of a bad row, which the report rejects."""
        with report.rejecting(row):
            return list(self.examples(row, split, report))
        return []

    def read_split(self, split: str, report: ReadReport) -> Records:
        """Yields the records of a split; by default file by file and row by row."""
        for file in self.files()[split]:
            for row in rows_of(file, report):
                for example in self.read_row(row, split, report):
                    yield example, row

    def read_file(self, file: File, split: str, report: ReadReport, start: int = 0) -> Records:
        """Yields the records of one file of a split, in the place of `read_split`.

        Args:
            start: Only those of rows with this number or a higher one; the report counts no others.
        """
        raise AssertionError(f"{self.name} is not read file by file")

    def read_from(self, start: int, split: str, report: ReadReport) -> Records:
        """Yields the records of a split from number `start` on; by default those before it are read and passed over."""
        return islice(self.read_split(split, report), start, None)

    def excluding(self, excluded: Excluded) -> "Source | None":
        """Returns the dataset without some knowledge, where this must be left out before its records are made.

        None (the default) where it is enough to drop such records when they have been read.
        """
        return None


def describe_files(source: Source, split: str) -> str:
    """Names the files that a split would need, with where to get them, for hints; empty if it has no files."""
    names = " or ".join(name for layout in source.official_files for name in layout.get(split, ()))
    return f"; or add {names}{f', from {source.address}' if source.address else ''}" if names else ""


def resolve_split(source: Source, split: str | None) -> str:
    """Returns the split to read: the one asked for; without one, the only split there is, or the dataset's default."""
    splits = source.split_names()
    if split is None:
        split = splits[0] if len(splits) == 1 else source.default_split
    if split not in splits:
        hint = f"choose from: {', '.join(splits)}"
        hint += describe_files(source, split)
        raise UserError(f"{source.name} has no split {split!r} here", place=source.path, hint=hint)
    return split


def read_examples(
    source: Source, split: str | None, report: ReadReport, num_rows: int | None = None
) -> Iterator[Example]:
    """Yields the records of one split (the first `num_rows` after filtering), checked: built rightly, ids unique.

    Args:
        split: None for the dataset's default (test, for most), or for the only split that is there.

    Raises:
        UserError: A bad row under `on_bad_row=stop`, a missing split, or nothing left.
    """
    check_num_rows(num_rows)
    split = resolve_split(source, split)
    kept = 0
    places: dict[bytes, str] = {}  # by id: where it was met first
    for example, row in source.read_split(split, report):
        if row is not None:
            key = _digest(example.id)
            if source.ids_repeat and key in places:
                report.count("repeated id, made unique by its row")
                example = replace(example, id=f"{example.id}@{row.default_id}")
                key = _digest(example.id)
            if key in places:
                duplicate = BadRow(f"id {shorten(example.id)} was already given by {places[key]}")
                report.reject(row.file, row.line, duplicate, row.values)
                continue
            places[key] = row.place
        kept += 1
        report.count("kept")
        yield example
        if kept == num_rows:
            return
    if not kept:
        counts = ", ".join(f"{name} {count}" for name, count in report.counts.items()) or "no rows"
        place, hint = source.path, "check that these are the right files, and the switches"
        if report.rejects:
            first = report.rejects[0]
            place, hint = f"{first['file']}, line {first['line']}", f"first problem: {first['problem']}"
        raise UserError(f"{source.name} has no usable example in split {split!r} ({counts})", place=place, hint=hint)


def read_drawn_examples(
    source: Source, split: str | None, report: ReadReport, *, num_rows: int | None, seed: int
) -> list[Example]:
    """Reads the records of one split, or at most `num_rows` of them as `draw_examples` does; the others are dropped."""
    check_num_rows(num_rows)
    examples = list(read_examples(source, split, report))
    if num_rows is None:
        return examples
    drawn = draw_examples(examples, num_rows, seed)
    if left_out := len(examples) - len(drawn):
        report.counts["kept"] = len(drawn)
        report.count(f"dropped: not drawn (num_rows={num_rows}, seed={seed})", left_out)
    return drawn


def check_num_rows(num_rows: int | None) -> None:
    """Refuses a number of rows below one."""
    if num_rows is not None and num_rows < 1:
        raise UserError(f"num_rows is {num_rows}", hint="give 1 or more, or null for all")


def draw_examples(examples: Sequence[Example], num_rows: int, seed: int) -> list[Example]:
    """Draws at most `num_rows` examples: whole groups by seed, from each part of the data in proportion to its rows.

    The parts are those that the fields `PARTS` of `meta` name. The examples stay in their order, which has no effect on
    the draw. Only a single group larger than `num_rows` is cut.
    """
    if len(examples) <= num_rows:
        return list(examples)
    groups: dict[str, list[int]] = {}
    for place, example in enumerate(examples):
        groups.setdefault(example.group, []).append(place)
    by_part: dict[tuple[str, ...], list[list[int]]] = {}
    for name in sorted(groups, key=lambda name: _digest(f"{seed}\0{name}")):
        found = {str([examples[place].meta.get(field) for field in PARTS]) for place in groups[name]}
        by_part.setdefault(tuple(sorted(found)), []).append(groups[name])
    # A group's position is the share of its part's rows before it, and some of its own by the seed: groups in the order
    # of their positions have all parts in proportion, wherever the order is cut.
    order: list[tuple[float, tuple[str, ...], list[int]]] = []
    for part, members in by_part.items():
        num_before, total = 0, sum(map(len, members))
        some = int.from_bytes(_digest(f"{seed}\0{part}")[:4], "little") / 2**32
        for rows in members:
            order.append(((num_before + some * len(rows)) / total, part, rows))
            num_before += len(rows)
    drawn: list[int] = []
    for _, _, rows in sorted(order):
        if len(drawn) + len(rows) <= num_rows:
            drawn += rows
    return [examples[place] for place in sorted(drawn or min(order)[2][:num_rows])]


def _digest(example_id: str) -> bytes:
    # Digests instead of ids: a fifth of the memory on corpora with long ids.
    return hashlib.blake2b(example_id.encode(errors="surrogatepass"), digest_size=12).digest()


@dataclass(frozen=True, kw_only=True)
class GeneratedSource(Source):
    """A dataset that makes any stretch of a split: it has `sizes` and `generate` in the place of files."""

    generated: ClassVar[bool] = True

    def files(self) -> Mapping[str, Sequence[File]]:
        """None."""
        return {}

    @abstractmethod
    def sizes(self) -> Mapping[str, int]:
        """Returns the number of records of each split."""

    @abstractmethod
    def generate(self, split: str, start: int = 0) -> Iterator[Example]:
        """Yields the records from `start` to the split's end, without making those before them."""

    def split_names(self) -> list[str]:
        return list(self.sizes())

    def read_split(self, split: str, report: ReadReport) -> Records:
        return self.read_from(0, split, report)

    def read_from(self, start: int, split: str, report: ReadReport) -> Records:
        return ((example, None) for example in self.generate(split, start))


@dataclass(frozen=True)
class WrappedSource(Source):
    """A dataset that forwards everything to another one; a wrapper overrides what it changes.

    `read_from` is inherited: it uses the wrapper's `read_split`.
    """

    source: Source
    path: str = field(init=False)

    def __post_init__(self) -> None:
        for attribute in Source.__annotations__:  # all that a dataset declares
            object.__setattr__(self, attribute, getattr(self.source, attribute))

    def files(self) -> Mapping[str, Sequence[File]]:
        return self.source.files()

    def check(self) -> None:
        self.source.check()

    def split_names(self) -> list[str]:
        return self.source.split_names()

    def sizes(self) -> Mapping[str, int] | None:
        return self.source.sizes()

    def layout(self) -> Mapping[str, Any]:
        return self.source.layout()

    def read_split(self, split: str, report: ReadReport) -> Records:
        return self.source.read_split(split, report)

    def read_file(self, file: File, split: str, report: ReadReport, start: int = 0) -> Records:
        return self.source.read_file(file, split, report, start)

    def with_all_rows(self, given: Collection[str] = ()) -> Source:
        return replace(self, source=self.source.with_all_rows(given))

    def excluding(self, excluded: Excluded) -> Source | None:
        inner = self.source.excluding(excluded)
        return None if inner is None else replace(self, source=inner)


@dataclass(frozen=True)
class FilteringSource(WrappedSource):
    """A dataset that leaves out some records of another one.

    Args:
        drops: Returns the outcome under which an example is dropped and counted; None keeps it.
        settings: What it depends on, for the cache key.
    """

    drops: Callable[[Example], str | None]
    settings: Mapping[str, Any]

    def layout(self) -> Mapping[str, Any]:
        return {**self.source.layout(), **self.settings}

    def sizes(self) -> Mapping[str, int] | None:
        """Returns None: only reading shows how many are left."""
        return None

    def read_split(self, split: str, report: ReadReport) -> Records:
        return self._kept(self.source.read_split(split, report), report)

    def read_file(self, file: File, split: str, report: ReadReport, start: int = 0) -> Records:
        return self._kept(self.source.read_file(file, split, report, start), report)

    def _kept(self, records: Records, report: ReadReport) -> Records:
        for example, row in records:
            if (outcome := self.drops(example)) is None:
                yield example, row
            else:
                report.count(outcome)


def exclude_from(source: Source, excluded: Excluded) -> Source:
    """Returns the dataset without the knowledge and dialogues of test sets that training must not touch."""
    if excluded == Excluded():
        return source
    if source.generated:
        raise UserError(f"data.exclude does not apply to {source.name}", hint="leave it out of data.parts")
    return source.excluding(excluded) or FilteringSource(source, excluded.reason, {"excluded": excluded.digest})


def content_hash(source: Source, split: str) -> str:
    """Hashes all that the records of a split depend on: the bytes of its files and the settings of its layout."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([source.name, split, dict(source.layout())], sort_keys=True, default=str).encode())
    for path in source.files().get(split, ()):
        digest.update(path.name.encode())  # the name is part of the ids
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
