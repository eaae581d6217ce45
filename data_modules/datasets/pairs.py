"""Users' pairs: a table of knowledge, response and label, in CSV, TSV, JSON lines, JSON, Parquet or `datasets` format.

Columns are found by their usual names or named by `columns`; labels are words with one possible meaning, or what
`labels` says. A question or history, an id, a group and marked spans are read if a column has them; the other values of
a row are kept to compare groups of rows.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

from data_modules.data_options import USER_TABLE
from data_modules.datasets.pair_columns import (
    AUTO,
    COLUMN_NAMES,
    Columns,
    LabelReader,
    check_column,
    field_of,
    find_columns,
    list_columns,
    none_if_nan,
    parse_list,
    read_meanings,
)
from data_modules.datasets.ragtruth import LABELS as RAGTRUTH_LABELS
from data_modules.reading.dataset import Records, Source, read_examples
from data_modules.reading.fields import other_fields, read_spans, text_group
from data_modules.reading.files import File, find_files, is_address, is_glob, saved_splits
from data_modules.reading.formats import SUFFIXES
from data_modules.reading.rows import EMPTY, NO_ROWS, REJECTED, BadRow, ReadReport, Row
from data_modules.reading.shards import ShardFile, shard_files
from data_modules.reading.table_files import read_table
from faithkit.errors import UserError, choice_hint, shorten
from faithkit.records import (
    AXES,
    CALLS,
    FAITHFUL,
    HALLUCINATED,
    RAGTRUTH,
    SPAN_LABELS,
    UNTYPED,
    Example,
    Span,
    number_passages,
)

JSON = (".json", ".jsonl")
LABELS = {label: label for label in SPAN_LABELS} | RAGTRUTH_LABELS  # of spans
MAX_CHARACTERS = 100  # of a further column's text in `meta`: longer ones do not group rows
STEMS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
BY_SPLIT = {
    split: [f"**/{stem}{part}{suffix}" for stem in stems for part in ("", "-*") for suffix in SUFFIXES]
    for split, stems in STEMS.items()
}
READING = 4  # part of the cache key: raise it when a row is read in another way
# A frame of pandas is what is passed most often in place of a path.
FRAME_HINT = (
    'save it, df.to_parquet("rows.parquet"), and read_pairs("rows.parquet")\n'
    "  or pass columns straight: critic.score(knowledge=list(df.context), response=list(df.answer))"
)


@dataclass(slots=True)
class PairReader:
    """Makes examples of the rows of a table with known columns.

    Args:
        join: Makes one text of a list of passages.
        labels: None: the rows have no labels, and spans alone show what is hallucinated.
        every_label: Reads the labels of the whole table, for the error about a label without a meaning.
        by: Columns that every row must have, kept in `meta` as texts.
        file: Names the file in default ids; None takes its stem.
        refuses_unknown_labels: A label without a meaning is an error; otherwise its row has no label.
    """

    columns: Columns
    join: Callable[[Sequence[str]], str] = " ".join
    labels: LabelReader | None = None
    every_label: Callable[[], Iterable[Any]] = tuple
    by: Sequence[str] = ()
    file: str | None = None
    refuses_unknown_labels: bool = True
    outcome: str = field(init=False)  # under which the rows are counted
    _used: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.outcome = f"columns: {self.columns}"
        self._used = frozenset(column.partition(".")[0] for _, column in self.columns.items())

    def read(self, row: Row, source: str, split: str) -> Example:
        """Makes the example of a row.

        Raises:
            BadRow: A text is missing, or a value is of another kind.
            UserError: A label has no meaning.
        """
        columns = self.columns
        passages = columns.texts(row, "knowledge")
        response = columns.text(row, "response") if columns.response is not None else ""
        knowledge = passages[0] if len(passages) == 1 else self.join(passages)
        label, spans = self._label(row), self._spans(row, response)
        if label == FAITHFUL and spans:
            raise BadRow(f"the label is faithful, but {columns.spans!r} marks {len(spans)} spans")
        if self.labels is None and spans is not None:
            label = HALLUCINATED if spans else FAITHFUL
        return Example(
            id=columns.name(row, "id") or (f"{self.file}:{row.number}" if self.file else row.default_id),
            source=source,
            split=split,
            group=columns.name(row, "group") or text_group(knowledge),
            knowledge=knowledge,
            response=response,
            history=columns.turns(row),
            label=label,
            spans=() if label == FAITHFUL and columns.spans else spans,
            meta=self._meta(row),
        )

    def _label(self, row: Row) -> str | None:
        if self.labels is None:
            return None
        value = field_of(row.values, self.labels.column)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        if not self.labels.knows(value):
            if not self.refuses_unknown_labels:
                return None
            raise self.labels.refuse(self.every_label(), row.place)
        return self.labels.read(value)

    def _spans(self, row: Row, response: str) -> tuple[Span, ...] | None:
        spans = field_of(row.values, self.columns.spans)
        if isinstance(spans, str) and spans.strip():
            spans = parse_list(spans)
            if spans is None:
                hint = 'write a list such as [{"start": 0, "end": 4}], or []'
                raise BadRow(f"column {self.columns.spans!r} holds no JSON list", hint=hint)
        if spans is None or spans == "":
            return None
        found = []
        row_of_spans = row.inside({"spans": spans})
        for span, item in read_spans(row_of_spans, "spans", response, "label", LABELS, UNTYPED, RAGTRUTH):
            given = [axis for axis in AXES if item.values.get(axis) is not None]
            axes: dict[str, Any] = {axis: item.choice(axis, {name: name for name in AXES[axis]}) for axis in given}
            found.append(replace(span, **axes))
        return tuple(found)

    def _meta(self, row: Row) -> dict[str, Any]:
        others = other_fields(row.values, self._used).items()
        meta = {
            name: none_if_nan(v)
            for name, v in others
            if not isinstance(v, str) or len(v) <= MAX_CHARACTERS or name == CALLS
        }
        for column in self.by:
            check_column(row, column, "benchmark.by=[COLUMN]")
            value = field_of(row.values, column)
            meta[column] = "" if value is None else str(value)
        return meta


def rows_with_reader(
    table: File, report: ReadReport, make: Callable[[Row], PairReader], encoding: str | None = None, start: int = 0
) -> Iterator[tuple[Row, PairReader]]:
    """Reads the rows of a table from row `start` on, each with the reader that makes its example.

    Args:
        make: Makes the reader from a row that has all columns.

    Raises:
        UserError: A column is missing.
    """
    reader = None
    # A shard of another file system is copied once, since it may be read twice.
    with table.opened() if isinstance(table, ShardFile) else nullcontext(table) as here:
        for each in read_table(here, report, encoding, start):
            row = each if here is table else replace(each, file=str(table))
            reader = reader or make(with_all_columns(here, row, encoding))
            if row.number >= start:
                yield row, reader


def with_all_columns(table: File, first: Row, encoding: str | None = None) -> Row:
    """Returns the first row of a table; rows of JSON may have different columns, so there it gets all of them."""
    if not isinstance(table, Path) or table.suffix not in JSON:
        return first
    return replace(first, values=_json_columns(table, table.stat().st_mtime_ns, encoding))


@lru_cache(maxsize=8)
def _json_columns(table: Path, modified: int, encoding: str | None) -> dict[str, Any]:
    """Returns the names that any row has, each with a value; a file that did not change is read once."""
    columns: dict[str, Any] = {}
    with suppress(UserError):  # a damaged file is reported by the pass that reads its rows
        for row in read_table(table, ReadReport("skip"), encoding):
            _add_columns(columns, row.values)
    return columns


def _add_columns(columns: dict[str, Any], values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, Mapping):
            if not isinstance(columns.get(name), dict):
                columns[name] = {}
            _add_columns(columns[name], value)
        elif columns.get(name) is None:
            columns[name] = value


@contextmanager
def counted_bad_rows(read: Callable[[ReadReport], Iterable[object]]) -> Iterator[None]:
    """Adds the number of bad rows to the error of the first one, which stops a run; `read` reads all rows."""
    try:
        yield
    except UserError as error:
        if not isinstance(error.__cause__, BadRow):
            raise
        counting = ReadReport("skip")
        for _ in read(counting):
            pass
        number = counting.counts[REJECTED]
        if number < 2:
            raise
        problem = f"{error.problem} (the first of {number:,} bad rows)"
        raise UserError(problem, place=error.place, hint=error.hint) from error.__cause__


@dataclass(frozen=True, kw_only=True)
class Pairs(Source):
    """Labelled pairs in a user's table.

    Args:
        path: A file; or a folder, of `datasets.save_to_disk` or with any of train, validation and test files; files of
            other names make one split, `all`. A glob or an address of fsspec takes shards in the same way.
        columns: The column of each meaning: knowledge, response, label, history, id, group, spans. A column, `a.b` for
            the field b of an object a, `auto` (the default) to find it by its usual names, or None for no column.
        labels: The meaning of each label: hallucinated, faithful, or None, which leaves its rows out.
        encoding: Of CSV and TSV; None detects UTF-8 and byte order marks.
        keys: The prefix of the settings' keys in hints.
        by: Columns that every row must have, kept to compare groups of rows.
        numbered: Passages of a list get their numbers, as taggers read them; otherwise they are joined by spaces.
    """

    name: ClassVar[str] = USER_TABLE
    embedded_layout: ClassVar[str | None] = "pairs"
    files_stand_alone: ClassVar[bool] = True
    columns: Mapping[str, str | None] = field(default_factory=dict)
    labels: Mapping[Any, Any] | None = None
    encoding: str | None = None
    keys: str = "data."
    by: Sequence[str] = ()
    numbered: bool = False

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if name not in COLUMN_NAMES:
                raise UserError(
                    f"{self.keys}columns.{name}: there is no such key", hint=choice_hint(name, COLUMN_NAMES)
                )
            if not isinstance(column, str | None) or column == "":
                hint = f"use the name of a column, {AUTO}, or null for none"
                raise UserError(f"{self.keys}columns.{name} is {shorten(column)}", hint=hint)
        if not isinstance(self.encoding, str | None):
            hint = f"{self.keys}encoding=cp1252, or null to detect it"
            raise UserError(f"{self.keys}encoding is {shorten(self.encoding)}", hint=hint)
        if self.labels is not None:
            read_meanings(self.labels, self.keys)

    def layout(self) -> Mapping[str, Any]:
        labels = None if self.labels is None else sorted(read_meanings(self.labels, self.keys).items())
        settings = {"columns": dict(self.columns), "labels": labels, "encoding": self.encoding, "reading": READING}
        numbered = {"numbered": True} if self.numbered else {}
        names = {"names": list(self._long_names.values())} if self._long_names else {}  # folders are part of the ids
        return {**settings, **numbered, **names}

    def files(self) -> Mapping[str, Sequence[File]]:
        if is_address(self.path) or is_glob(self.path):
            return shard_files(self.path, STEMS)
        folder = Path(self.path).expanduser()
        if folder.is_dir() and (splits := saved_splits(folder)):
            official = {name: split for split, names in STEMS.items() for name in names}
            found: dict[str, list[File]] = {}
            for name, split in splits.items():  # `validation` and `dev` are one split, as for files of such names
                found.setdefault(official.get(name, name), []).append(split)
            return found
        return find_files(self.path, BY_SPLIT, {"all": [f"*{suffix}" for suffix in SUFFIXES]})

    def check(self) -> None:
        """Refuses a table without the columns, or with a first label that has no meaning."""
        for tables in self.files().values():
            for table in tables:
                report = ReadReport("skip", self.keys)
                try:
                    first = next(rows_with_reader(table, report, partial(self._reader, table), self.encoding), None)
                except UserError as error:
                    if error.problem != NO_ROWS or len(tables) == 1:
                        raise
                    continue
                if first is not None:
                    with suppress(BadRow):
                        first[1].read(first[0], self.name, "all")
                    break

    def read_split(self, split: str, report: ReadReport) -> Records:
        report.keys = self.keys
        with counted_bad_rows(lambda counting: self._records(split, counting)):
            yield from self._records(split, report)

    def read_file(self, file: File, split: str, report: ReadReport, start: int = 0) -> Records:
        report.keys = self.keys
        for row, reader in rows_with_reader(file, report, partial(self._reader, file), self.encoding, start):
            report.count(reader.outcome)
            with report.rejecting(row):
                example = reader.read(row, self.name, split)
                if example.label is not None or reader.labels is None:
                    yield example, row
                    continue
                value = field_of(row.values, reader.columns.label)
                report.count("dropped: no label" if value in (None, "") else "dropped: a label that is left out")

    def _records(self, split: str, report: ReadReport) -> Records:
        tables = self.files()[split]
        for table in tables:
            try:
                yield from self.read_file(table, split, report)
            except UserError as error:
                if error.problem != NO_ROWS or len(tables) == 1:
                    raise
                report.count(EMPTY)

    def _reader(self, table: File, row: Row) -> PairReader:
        columns = find_columns(self.columns, row, keys=self.keys)
        if columns.label is None and columns.spans is None and self.columns.get("label", AUTO) is not None:
            hint = f"name it: {self.keys}columns.label=COLUMN; {list_columns(row)}"
            raise UserError("no column holds the label", place=row.file, hint=hint)
        labels = LabelReader(columns.label, self.labels, self.keys) if columns.label else None

        def every_label() -> Iterator[Any]:
            rows = read_table(table, ReadReport("skip", self.keys), self.encoding)
            return (field_of(each.values, columns.label) for each in rows)

        join = number_passages if self.numbered else " ".join
        file = None if columns.id else self._long_names.get(str(table))
        return PairReader(columns, join, labels, every_label, self.by, file)

    @cached_property
    def _long_names(self) -> Mapping[str, str]:
        """Files of a split with the same stem, by their paths below the folder that they have in common."""
        found: dict[str, str] = {}
        for files in self.files().values():
            stems = Counter(Path(str(file)).stem for file in files)
            if repeated := [str(file) for file in files if stems[Path(str(file)).stem] > 1]:
                common = os.path.commonpath([Path(path).parent for path in repeated])
                found |= {path: os.path.relpath(path, common) for path in repeated}
        return found


def read_pairs(
    path: str | Path,
    *,
    columns: Mapping[str, str | None] | None = None,
    labels: Mapping[Any, Any] | None = None,
    split: str | None = None,
    encoding: str | None = None,
) -> list[Example]:
    """Reads a user's table as records, which `predict_examples` of every detector takes.

        from faithkit import Critic, read_pairs
        examples = read_pairs("my.csv", labels={1: "hallucinated", 0: "faithful"})
        predictions = list(Critic.load("runs/...").predict_examples(examples))

    Args:
        columns: The column of each meaning, if its name does not show it; a label of None reads rows without labels.
        labels: The meaning of each label, if its word does not show it; None leaves its rows out.
        split: Of a folder with several; None takes the test split, or the only one.
        encoding: Of CSV and TSV; None detects UTF-8 and byte order marks.

    Raises:
        UserError: A column or the meaning of a label is missing, a row is bad, or `path` is a table in memory.
    """
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"read_pairs takes the path of a table, got a {type(path).__name__}", hint=FRAME_HINT)
    source = Pairs(path=str(path), columns=columns or {}, labels=labels, encoding=encoding, keys="")
    return list(read_examples(source, split, ReadReport()))
