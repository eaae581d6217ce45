"""Pairs of one's own: a table of knowledge, response and label, in CSV, TSV, JSON lines, JSON, Parquet or `datasets`.

Columns are found by their usual names or named by `columns`; labels are words that can mean one thing alone, or what
`labels` says. A question or history, an id, a group and marked spans are read where a column has them; what else a row
has is kept to tell rows apart by.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from data_modules.datasets.pair_columns import AUTO, NAMES, Columns, field_of, find_columns, have, list_in
from data_modules.datasets.pair_labels import LabelReader, meanings
from data_modules.datasets.span_checks import read_spans
from data_modules.datasets.span_rows import LABELS
from data_modules.reading.dataset import Records, Source
from data_modules.reading.fields import other_fields, text_group
from data_modules.reading.files import File, find_files
from data_modules.reading.rows import BadRow, ReadReport, Row
from data_modules.reading.saved_datasets import saved_splits
from data_modules.reading.tables import SUFFIXES, read_table
from faithkit.errors import UserError, choice_hint, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Span
from faithkit.span_types import UNTYPED

STEMS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
BY_SPLIT = {
    split: [f"**/{stem}{part}{suffix}" for stem in stems for part in ("", "-*") for suffix in SUFFIXES]
    for split, stems in STEMS.items()
}
MAX_CHARACTERS = 100  # of a further column's text: longer ones tell no rows apart


@dataclass(frozen=True, kw_only=True)
class Pairs(Source):
    """Labelled pairs in a table of one's own.

    Args:
        path: A file; or a folder, of `datasets.save_to_disk` or with train, validation and test files, whichever there
            are; files of other names make one split, `all`.
        columns: What stands in which column, by name: knowledge, response, label, history, id, group, spans. A column,
            `a.b` for the field b of an object a, `auto` (as what is left out) for its usual name, or None for none.
        labels: The meaning of each label: hallucinated, faithful, or None, which leaves its rows out.
        encoding: Of CSV and TSV; None finds UTF-8 and what has a byte order mark.
        keys: How the keys of the settings begin that hints name.
    """

    name: ClassVar[str] = "pairs"
    embedded_layout: ClassVar[str | None] = "pairs"
    columns: Mapping[str, str | None] = field(default_factory=dict)
    labels: Mapping[Any, Any] | None = None
    encoding: str | None = None
    keys: str = "data."

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if name not in NAMES:
                raise UserError(f"{self.keys}columns.{name}: there is no such key", hint=choice_hint(name, NAMES))
            if not isinstance(column, str | None) or column == "":
                hint = f"use the name of a column, {AUTO}, or null for none"
                raise UserError(f"{self.keys}columns.{name} is {shorten(column)}", hint=hint)
        if self.labels is not None:
            meanings(self.labels, self.keys)

    def layout(self) -> Mapping[str, Any]:
        labels = None if self.labels is None else sorted(meanings(self.labels, self.keys).items())
        return {"columns": dict(self.columns), "labels": labels, "encoding": self.encoding}

    def files(self) -> Mapping[str, Sequence[File]]:
        folder = Path(self.path).expanduser()
        if folder.is_dir() and (splits := saved_splits(folder)):
            official = {name: split for split, names in STEMS.items() for name in names}
            return {official.get(name, name): [split] for name, split in splits.items()}
        return find_files(self.path, BY_SPLIT, {"all": [f"*{suffix}" for suffix in SUFFIXES]})

    def check(self) -> None:
        """Refuses a table without the columns, or whose first label has no meaning."""
        for table in (table for tables in self.files().values() for table in tables[:1]):
            for row in islice(read_table(table, ReadReport("skip", self.keys), self.encoding), 1):
                with suppress(BadRow):
                    self._reader(table, row).read(row, self.name, "all")

    def read_split(self, split: str, report: ReadReport) -> Records:
        report.keys = self.keys
        with counted_bad_rows(lambda counting: self._records(split, counting)):
            yield from self._records(split, report)

    def _records(self, split: str, report: ReadReport) -> Records:
        for table in self.files()[split]:
            make = partial(self._reader, table)
            for row, reader in rows_with_reader(table, report, make, self.encoding):
                report.count(reader.outcome)
                if (example := self._read(reader, row, split, report)) is not None:
                    yield example, row

    def _reader(self, table: File, row: Row) -> "PairReader":
        columns = find_columns(self.columns, row, keys=self.keys)
        if columns.label is None and columns.spans is None and self.columns.get("label", AUTO) is not None:
            hint = f"name it: {self.keys}columns.label=COLUMN; {have(row)}"
            raise UserError("no column holds the label", place=row.file, hint=hint)
        labels = LabelReader(columns.label, self.labels, self.keys) if columns.label else None

        def every_label() -> Iterator[Any]:
            rows = read_table(table, ReadReport("skip", self.keys), self.encoding)
            return (field_of(each.values, columns.label) for each in rows)

        return PairReader(columns, labels=labels, every_label=every_label)

    def _read(self, reader: "PairReader", row: Row, split: str, report: ReadReport) -> Example | None:
        try:
            example = reader.read(row, self.name, split)
        except UserError:
            raise
        except ValueError as error:
            report.reject(row.file, row.line, BadRow.of(error), row.values)
            return None
        if example.label is None and reader.labels is not None:
            known = field_of(row.values, reader.columns.label)
            report.count("dropped: no label" if known in (None, "") else "dropped: a label that is left out")
            return None
        return example


def rows_with_reader(
    table: File, report: ReadReport, make: Callable[[Row], "PairReader"], encoding: str | None = None
) -> Iterator[tuple[Row, "PairReader"]]:
    """Reads the rows of a table with what makes examples of them, found by the first row.

    Where bad rows are skipped, and each row has names of its own, a first row without the columns may be one of these.
    """
    reader, refused = None, None
    for row in read_table(table, report, encoding):
        if reader is None:
            try:
                reader = make(row)
            except UserError as error:
                if report.on_bad_row == "stop" or Path(row.file).suffix not in (".json", ".jsonl"):
                    raise
                refused = refused or error
                report.reject(row.file, row.line, BadRow(error.problem), row.values)
                continue
        yield row, reader
    if reader is None and refused is not None:
        raise refused


@contextmanager
def counted_bad_rows(read: Callable[[ReadReport], Iterable[object]]) -> Iterator[None]:
    """Says with the bad row that stops a run how many there are.

    Args:
        read: Reads all rows.
    """
    try:
        yield
    except UserError as error:
        if not isinstance(error.__cause__, BadRow):
            raise
        counting = ReadReport("skip")
        for _ in read(counting):
            pass
        number = counting.counts["rejected: bad row"]
        if number < 2:
            raise
        problem = f"{error.problem} (the first of {number:,} bad rows)"
        raise UserError(problem, place=error.place, hint=error.hint) from error.__cause__


@dataclass(slots=True)
class PairReader:
    """Makes examples of the rows of a table whose columns are known.

    Args:
        join: Makes one text of a list of passages.
        labels: None: the rows have none, and spans alone tell what is hallucinated.
        every_label: Reads the labels of the whole table, for the error about one that has no meaning.
    """

    columns: Columns
    join: Callable[[Sequence[str]], str] = " ".join
    labels: LabelReader | None = None
    every_label: Callable[[], Iterable[Any]] = tuple
    outcome: str = field(init=False)  # under which rows are counted that are read so
    _taken: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.outcome = f"columns: {self.columns}"
        self._taken = frozenset(column.partition(".")[0] for _, column in self.columns.items())

    def read(self, row: Row, source: str, split: str) -> Example:
        """The example of a row.

        Raises:
            BadRow: A text is missing, or something is of another kind.
            UserError: A label has no meaning.
        """
        columns = self.columns
        passages, response = columns.texts(row, "knowledge"), columns.text(row, "response")
        knowledge = passages[0] if len(passages) == 1 else self.join(passages)
        label, spans = self._label(row), self._spans(row, response)
        if label == FAITHFUL and spans:
            raise BadRow(f"the label is faithful, but {columns.spans!r} marks {len(spans)} spans")
        if self.labels is None and spans is not None:
            label = HALLUCINATED if spans else FAITHFUL
        return Example(
            id=columns.name(row, "id") or row.default_id,
            source=source,
            split=split,
            group=columns.name(row, "group") or text_group(knowledge),
            knowledge=knowledge,
            response=response,
            history=columns.turns(row),
            label=label,
            spans=() if label == FAITHFUL and columns.spans else spans,
            meta=self._others(row),
        )

    def _label(self, row: Row) -> str | None:
        if self.labels is None:
            return None
        value = field_of(row.values, self.labels.column)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        if not self.labels.knows(value):
            raise self.labels.refuse(self.every_label(), row.place)
        return self.labels.read(value)

    def _spans(self, row: Row, response: str) -> tuple[Span, ...] | None:
        marked = field_of(row.values, self.columns.spans)
        if isinstance(marked, str) and marked.strip():
            marked = list_in(marked)
            if marked is None:
                example = 'write a list such as [{"start": 0, "end": 4}], or []'
                raise BadRow(f"column {self.columns.spans!r} holds no JSON list", hint=example)
        if marked is None or marked == "":
            return None
        inside = row.inside({"spans": marked})
        spans = [span for span, _ in read_spans(inside, "spans", response, "label", LABELS, UNTYPED)]
        return tuple(sorted(spans, key=lambda span: (span.start, span.end)))

    def _others(self, row: Row) -> dict[str, Any]:
        others = other_fields(row.values, self._taken)
        return {name: v for name, v in others.items() if not isinstance(v, str) or len(v) <= MAX_CHARACTERS}
