"""Makes examples of the rows of a table of one's own: what training, benchmarks and `faithkit score` share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from data_modules.datasets.pair_columns import (
    Columns,
    NoColumn,
    check_column,
    field_of,
    has_field,
    is_usual,
    late_column,
    list_in,
    none_if_nan,
)
from data_modules.datasets.pair_labels import LabelReader
from data_modules.datasets.span_checks import read_spans
from data_modules.datasets.span_rows import LABELS
from data_modules.reading.fields import other_fields, text_group
from data_modules.reading.files import File
from data_modules.reading.rows import BadRow, ReadReport, Row
from data_modules.reading.shard_file import ShardFile
from data_modules.reading.tables import read_table
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Span
from faithkit.span_types import UNTYPED

JSON = (".json", ".jsonl")
LOOKED_AT = 1000  # rows of JSON whose names are the columns
MAX_CHARACTERS = 100  # of a further column's text: longer ones tell no rows apart


def rows_with_reader(
    table: File, report: ReadReport, make: Callable[[Row], "PairReader"], encoding: str | None = None, start: int = 0
) -> Iterator[tuple[Row, "PairReader"]]:
    """Reads the rows of a table from one on, with what makes examples of them.

    Args:
        make: Makes it of a row with all columns: of the first one, or of JSON as `reader_of` says.

    Raises:
        UserError: A column is missing, or a row behind the first ones has one that would have been chosen.
    """
    reader, known, is_json = None, dict[str, Any](), _is_json(table)
    with _at_hand(table) as here:
        for each in read_table(here, report, encoding, start):
            row = each if here is table else replace(each, file=str(table))
            if reader is None:
                reader, known = reader_of(here, row, make, encoding)
            elif is_json and not row.values.keys() <= known.keys():
                _check_names(row, known, reader, make)
            if row.number >= start:
                yield row, reader


def reader_of(
    table: File, first: Row, make: Callable[[Row], "PairReader"], encoding: str | None = None
) -> "tuple[PairReader, dict[str, Any]]":
    """Makes what reads a table's rows by the first one; of JSON by the names of the first `LOOKED_AT` rows.

    Each row of JSON has names of its own, and the first may lack some. A column that the settings name is looked for in
    all rows, as it may be rare.

    Returns:
        It, and the columns by which it was made, each with a value.
    """
    if not _is_json(table):
        return make(first), dict(first.values)
    known = dict(first.values)
    with suppress(UserError):  # a file that breaks off is told by the pass that gives its rows
        for row in islice(read_table(table, ReadReport("skip"), encoding), LOOKED_AT):
            known |= {name: value for name, value in row.values.items() if known.get(name) is None}
    while True:
        try:
            return make(replace(first, values=known)), known
        except NoColumn as error:
            rows = read_table(table, ReadReport("skip"), encoding)
            found = next((row for row in rows if has_field(row.values, error.column)), None)
            if found is None:
                raise
            known[error.column] = field_of(found.values, error.column)


def _check_names(row: Row, known: dict[str, Any], reader: "PairReader", make: Callable[[Row], "PairReader"]) -> None:
    """Refuses a row with a column that the first rows lack and that would have been chosen."""
    for column in [name for name in row.values if name not in known and is_usual(name)]:
        with_it = replace(row, values={**known, column: row.values[column]})
        try:
            changed = make(with_it).columns != reader.columns
        except UserError:  # several columns might hold the same
            changed = True
        if changed:
            raise late_column(column, row, reader.columns)
        known[column] = row.values[column]


def _is_json(table: File) -> bool:
    return isinstance(table, Path | ShardFile) and table.suffix in JSON


@contextmanager
def _at_hand(table: File) -> Iterator[File]:
    """Copies a shard of another file system once, for what reads it twice."""
    if not isinstance(table, ShardFile):
        yield table
        return
    with table.opened() as path:
        yield path


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
        by: Columns that every row must have, kept as texts to tell rows apart by.
        file: Names the file in default ids; None takes its stem.
    """

    columns: Columns
    join: Callable[[Sequence[str]], str] = " ".join
    labels: LabelReader | None = None
    every_label: Callable[[], Iterable[Any]] = tuple
    by: Sequence[str] = ()
    file: str | None = None
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
        kept = {
            name: none_if_nan(v) for name, v in others.items() if not isinstance(v, str) or len(v) <= MAX_CHARACTERS
        }
        for column in self.by:
            check_column(row, column, "benchmark.by=[COLUMN]")
            value = field_of(row.values, column)
            kept[column] = "" if value is None else str(value)
        return kept
