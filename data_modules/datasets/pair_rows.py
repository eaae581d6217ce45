"""Makes examples of the rows of a table of one's own: what training, benchmarks and `faithkit score` share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_modules.datasets.pair_columns import Columns, check_column, field_of, list_in
from data_modules.datasets.pair_labels import LabelReader
from data_modules.datasets.span_checks import read_spans
from data_modules.datasets.span_rows import LABELS
from data_modules.reading.fields import other_fields, text_group
from data_modules.reading.files import File
from data_modules.reading.rows import BadRow, ReadReport, Row
from data_modules.reading.tables import read_table
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Span
from faithkit.span_types import UNTYPED

MAX_CHARACTERS = 100  # of a further column's text: longer ones tell no rows apart


def rows_with_reader(
    table: File, report: ReadReport, make: Callable[[Row], "PairReader"], encoding: str | None = None, start: int = 0
) -> Iterator[tuple[Row, "PairReader"]]:
    """Reads the rows of a table from one on, with what makes examples of them, found by the table's first row.

    Where bad rows are skipped, and each row has names of its own, a first row without the columns may be one of these.
    """
    reader, refused = None, None
    for row in read_table(table, report, encoding, start):
        if reader is None:
            try:
                reader = make(row)
            except UserError as error:
                if report.on_bad_row == "stop" or Path(row.file).suffix not in (".json", ".jsonl"):
                    raise
                refused = refused or error
                report.reject(row.file, row.line, BadRow(error.problem), row.values)
                continue
        if row.number >= start:
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
        by: Columns that every row must have, kept as texts to tell rows apart by.
    """

    columns: Columns
    join: Callable[[Sequence[str]], str] = " ".join
    labels: LabelReader | None = None
    every_label: Callable[[], Iterable[Any]] = tuple
    by: Sequence[str] = ()
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
        kept = {name: v for name, v in others.items() if not isinstance(v, str) or len(v) <= MAX_CHARACTERS}
        for column in self.by:
            check_column(row, column, "benchmark.by=[COLUMN]")
            value = field_of(row.values, column)
            kept[column] = "" if value is None else str(value)
        return kept
