"""Reads a user's table as examples, in several passes and without holding it in memory."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from construction.labels import PROBABILITY
from data_modules.datasets.pair_columns import AUTO, REQUIRED, Columns, LabelReader, check_column, find_columns
from data_modules.datasets.pairs import PairReader, counted_bad_rows, rows_with_reader
from data_modules.reading.files import SavedSplit, saved_splits
from data_modules.reading.rows import BadRow, ReadReport, Row
from data_modules.reading.table_files import text_format
from faithkit.errors import UserError
from faithkit.files.atomic import dumps
from faithkit.provenance.row_keys import group_hash
from faithkit.records import Example

SOURCE = "own rows"
JSON = (".json", ".jsonl")
LABEL, SPANS = "label", "spans"
LABEL_COLUMNS = (LABEL, SPANS)  # not read unless verdicts are compared with labels
RESPONSE_COLUMNS = ("response", *LABEL_COLUMNS)  # not read where a generator answers the rows


@dataclass(slots=True, kw_only=True)
class UserTable:
    """A table of rows to judge or to answer.

    Args:
        columns: The columns of knowledge, response, label, history, id and group; null for none, `auto` to find a
            column by its usual names.
        join: Joins a list of passages to the text that the detector was trained on.
        by: Columns that every row must have.
        encoding: Of CSV and TSV; None detects UTF-8 and byte order marks.
        without: Fields that are not read.
        keys: The prefix of the settings' keys in hints.
        evidence: What the turns of conversations must rest on: tools, user, system.
    """

    path: str
    columns: Mapping[str, str | None]
    join: Callable[[Sequence[str]], str]
    by: Sequence[str] = ()
    on_bad_row: str = "stop"
    num_rows: int | None = None
    encoding: str | None = None
    without: Sequence[str] = LABEL_COLUMNS
    keys: str = ""
    evidence: Sequence[str] = ("tools",)
    # Results of the first pass: columns, the types of their values, numbers of rows.
    found: Columns | None = None
    kinds: dict[str, set[type]] = field(default_factory=dict)
    num_read: int = 0
    num_examples: int = 0
    report: ReadReport = field(default_factory=ReadReport)
    _repeated: frozenset[int] = frozenset()

    @property
    def table(self) -> Path | SavedSplit:
        """The file, or the folder that `datasets` saved.

        Raises:
            UserError: The folder contains something else, or several splits.
        """
        path = Path(self.path).expanduser()
        if not path.is_dir():
            return path
        splits = saved_splits(path)
        if list(splits) == ["all"]:
            return splits["all"]
        if not splits:
            raise UserError(
                "a folder that `datasets` did not save",
                place=self.path,
                hint="set path to a file in it",
            )
        first = next(iter(splits.values()))
        raise UserError(f"a folder with the splits {', '.join(splits)}", place=self.path, hint=f"path={first.folder}")

    @property
    def description(self) -> str:
        """The columns that are read and the file format, in one line."""
        table = self.table
        form = str(text_format(table, self.encoding, "")) if isinstance(table, Path) and table.suffix == ".csv" else ""
        return f"{self.found}{f'; {form}' if form else ''}"

    @property
    def _is_json(self) -> bool:
        return isinstance(self.table, Path) and self.table.suffix in JSON

    @property
    def grouped_by(self) -> str:
        """The column that groups the rows."""
        return self.found.group if self.found and self.found.group else "knowledge"

    def check(self) -> None:
        """Reads all rows once, so that a bad row is reported before any work.

        Raises:
            UserError: A column is missing, a text is empty, or an id is repeated (with `on_bad_row=stop`).
        """
        self.report = ReadReport(self.on_bad_row, self.keys, evidence=self.evidence)
        if self.columns.get("id") is not None:  # row numbers are never repeated
            hashes = array("Q", (group_hash(example.id) for example in self.examples))
            values, counts = np.unique(np.frombuffer(hashes, np.uint64) if hashes else [], return_counts=True)
            self._repeated = frozenset(int(value) for value in values[counts > 1])
        is_json = self._is_json
        with counted_bad_rows(lambda counting: self._scan(counting)):
            for row, example in self._scan(self.report):
                self.num_read += 1
                self.num_examples += example is not None
                if not self.kinds or is_json:  # each JSON row has its own names
                    for name, value in row.values.items():
                        self.kinds.setdefault(name, set()).add(type(value))
        if not self.num_examples:
            needed = [f"{self.keys}columns.{name}" for name in REQUIRED if name not in self.without]
            raise UserError("no row can be used", place=self.path, hint=f"set {' and '.join(needed)}")

    def __iter__(self) -> Iterator[tuple[Mapping[str, Any], Example | None]]:
        """Yields each row unchanged with its example; None for a row that cannot be used."""
        report = ReadReport("skip", self.keys, evidence=self.evidence)
        return ((row.values, example) for row, example in self._scan(report))

    @property
    def examples(self) -> Iterator[Example]:
        """Yields the examples of the rows that can be used."""
        return (example for _, example in self if example is not None)

    def _scan(self, report: ReadReport) -> Iterator[tuple[Row, Example | None]]:
        places: dict[str, str] = {}  # of repeated ids: where they were first
        is_json = self._is_json
        rows = rows_with_reader(self.table, report, self._reader, self.encoding)
        for row, reader in islice(rows, self.num_rows):
            if is_json:
                try:
                    dumps(row.values)
                except (ValueError, RecursionError) as error:  # the row cannot be written back
                    problem = BadRow(f"the row cannot be written as JSON: {error}")
                    report.reject(row.file, row.line, problem, row.values)
                    continue
            example = None
            try:
                for column in self.by:
                    check_column(row, column, "by=COLUMN")
                read = reader.read(row, SOURCE, "all")
                if self._repeated and group_hash(read.id) in self._repeated:
                    if read.id in places:
                        raise BadRow(f"id {read.id!r} is already in {places[read.id]}", hint="columns.id=null")
                    places[read.id] = row.place
                example = read
            except ValueError as error:
                report.reject(row.file, row.line, BadRow.of(error), row.values)
            yield row, example

    def _reader(self, row: Row) -> PairReader:
        if PROBABILITY in row.values and self.columns.get(LABEL, AUTO) == AUTO:  # the label is an earlier verdict
            row = replace(row, values={name: value for name, value in row.values.items() if name != LABEL})
        self.found = found = find_columns(self.columns, row, keys=self.keys, without=self.without)
        labels = LabelReader(found.label, keys=self.keys) if found.label is not None else None
        return PairReader(found, join=self.join, labels=labels, refuses_unknown_labels=False)


def open_table_to_judge(config: Mapping[str, Any], *, without: Sequence[str] = LABEL_COLUMNS) -> UserTable:
    """Opens the table of `faithkit score`; lists of passages are joined as the detector's training data joined them.

    Args:
        without: Fields that are not read.
    """
    from faithkit.records import join_passages, number_passages
    from faithkit_workflows.detectors.loading import kind_of

    join = number_passages if kind_of(config["checkpoint"]).numbers_passages else join_passages
    options: dict[str, Any] = {name: config.get(name) for name in ("on_bad_row", "num_rows", "encoding")}
    options["evidence"] = config.get("evidence") or ("tools",)
    options["without"] = without
    return open_user_table(config["path"], config["columns"], join=join, by=as_list(config["by"]), **options)


def as_list(by: str | Sequence[str] | None) -> list[str]:
    """Returns the columns to count by as a list."""
    return [by] if isinstance(by, str) else list(by or [])


def open_user_table(path: str, columns: Mapping[str, str | None], **options: Any) -> UserTable:
    """Opens a table and checks all rows; arguments and errors are those of `UserTable`."""
    table = UserTable(path=path, columns=columns, **options)
    table.check()
    return table
