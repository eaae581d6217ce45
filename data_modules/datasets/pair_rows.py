"""Makes examples of the rows of a user's table: shared by training, benchmarks and `faithkit score`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from data_modules.datasets.pair_columns import Columns, check_column, field_of, none_if_nan, parse_list
from data_modules.datasets.pair_labels import LabelReader
from data_modules.datasets.ragtruth import LABELS as RAGTRUTH_LABELS
from data_modules.reading.conversations import CALLS
from data_modules.reading.fields import other_fields, read_spans, text_group
from data_modules.reading.files import File
from data_modules.reading.rows import REJECTED, BadRow, ReadReport, Row
from data_modules.reading.shards import ShardFile
from data_modules.reading.table_files import read_table
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, SPAN_LABELS, UNTYPED, Example, Span
from faithkit.span_types import AXES, RAGTRUTH

JSON = (".json", ".jsonl")
LABELS = {label: label for label in SPAN_LABELS} | RAGTRUTH_LABELS  # of spans
MAX_CHARACTERS = 100  # of a further column's text in `meta`: longer ones do not group rows


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
