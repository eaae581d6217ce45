"""A table of one's own that a detector is to judge: its rows as examples, read anew at each pass and never held."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from data_modules.datasets.pair_columns import REQUIRED, Columns, check_column, find_columns
from data_modules.datasets.pair_rows import PairReader, counted_bad_rows, rows_with_reader
from data_modules.encoding.cache import group_hash
from data_modules.reading.rows import BadRow, ReadReport, Row
from data_modules.reading.saved_datasets import SavedSplit, saved_splits
from data_modules.reading.tables import text_format
from faithkit.errors import UserError
from faithkit.files.atomic import dumps
from faithkit.records import Example

SOURCE, SPLIT = "own rows", "all"
JSON = (".json", ".jsonl")
NOT_LABELLED = ("label", "spans")  # columns that are not looked for
NOT_ANSWERED = ("response", *NOT_LABELLED)


@dataclass(slots=True, kw_only=True)
class OwnRows:
    """The rows of a table.

    Args:
        columns: The names of the columns that hold knowledge, response, history, id and group; null for none, `auto` to
            find one by its usual name.
        join: Makes one text of a list of passages, as the detector was trained to read them.
        by: Columns that every row must have.
        encoding: Of CSV and TSV; None finds UTF-8 and what has a byte order mark.
        without: What is not looked for in the columns.
        keys: How the keys of the settings begin that hints name.
    """

    path: str
    columns: Mapping[str, str | None]
    join: Callable[[Sequence[str]], str]
    by: Sequence[str] = ()
    on_bad_row: str = "stop"
    num_rows: int | None = None
    encoding: str | None = None
    without: Sequence[str] = NOT_LABELLED
    keys: str = ""
    # What the first pass finds: columns, the kinds of their values, and numbers of rows.
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
            UserError: A folder of something else, or of several splits.
        """
        path = Path(self.path).expanduser()
        if not path.is_dir():
            return path
        splits = saved_splits(path)
        if list(splits) == ["all"]:
            return splits["all"]
        if not splits:
            raise UserError(
                "no plain file: a folder, and not one that `datasets` saved",
                place=self.path,
                hint="set path to a file in it",
            )
        first = next(iter(splits.values()))
        raise UserError(f"a folder of the splits {', '.join(splits)}", place=self.path, hint=f"path={first.folder}")

    @property
    def description(self) -> str:
        """Says which columns are read, and in which format, in one line."""
        table = self.table
        form = str(text_format(table, self.encoding, "")) if isinstance(table, Path) and table.suffix == ".csv" else ""
        return f"{self.found}{f'; {form}' if form else ''}"

    @property
    def _is_json(self) -> bool:
        return isinstance(self.table, Path) and self.table.suffix in JSON

    @property
    def grouped_by(self) -> str:
        """Says what the rows of a group have in common."""
        return self.found.group if self.found and self.found.group else "knowledge"

    def check(self) -> None:
        """Reads all rows once, so that a bad one is told before any work.

        Raises:
            UserError: A column is missing, a text is empty, or an id is given twice (with `on_bad_row=stop`).
        """
        self.report = ReadReport(self.on_bad_row, self.keys)
        self._repeated, is_json = self._find_repeated(), self._is_json
        with counted_bad_rows(lambda counting: self._scan(counting)):
            for row, example in self._scan(self.report):
                self.num_read += 1
                self.num_examples += example is not None
                if not self.kinds or is_json:  # whose rows have names of their own each
                    for name, value in row.values.items():
                        self.kinds.setdefault(name, set()).add(type(value))
        if not self.num_examples:
            needed = [f"{self.keys}columns.{name}" for name in REQUIRED if name not in self.without]
            raise UserError("no row can be used", place=self.path, hint=f"set {' and '.join(needed)}")

    def __iter__(self) -> Iterator[tuple[Mapping[str, Any], Example | None]]:
        """Yields each row as the file has it, with its example; None where it could not be used."""
        return ((row.values, example) for row, example in self._scan(ReadReport("skip", self.keys)))

    @property
    def examples(self) -> Iterator[Example]:
        """Yields the rows that can be judged."""
        return (example for _, example in self if example is not None)

    def _scan(self, report: ReadReport) -> Iterator[tuple[Row, Example | None]]:
        places: dict[str, str] = {}  # of ids that are given twice: where they were first
        is_json = self._is_json
        rows = rows_with_reader(self.table, report, self._reader, self.encoding)
        for row, reader in islice(rows, self.num_rows):
            example = None
            try:
                if is_json:
                    _check_json(row)
            except ValueError as error:  # the row could not be written back
                report.reject(row.file, row.line, BadRow.of(error), row.values)
                continue
            try:
                example = self._example(row, reader, places)
            except ValueError as error:
                report.reject(row.file, row.line, BadRow.of(error), row.values)
            yield row, example

    def _reader(self, row: Row) -> PairReader:
        self.found = find_columns(self.columns, row, keys=self.keys, without=self.without)
        return PairReader(self.found, join=self.join)

    def _example(self, row: Row, reader: PairReader, places: dict[str, str]) -> Example:
        for column in self.by:
            check_column(row, column, "by=COLUMN")
        example = reader.read(row, SOURCE, SPLIT)
        if self._repeated and group_hash(example.id) in self._repeated:
            if example.id in places:
                raise BadRow(f"id {example.id!r} was already given by {places[example.id]}", hint="columns.id=null")
            places[example.id] = row.place
        return example

    def _find_repeated(self) -> frozenset[int]:
        """Hashes of ids that may be given twice; numbers of rows are not."""
        if self.columns.get("id") is None:
            return frozenset()
        hashes = array("Q", (group_hash(example.id) for example in self.examples))
        values, counts = np.unique(np.frombuffer(hashes, np.uint64) if hashes else [], return_counts=True)
        return frozenset(int(value) for value in values[counts > 1])


def _check_json(row: Row) -> None:
    try:
        dumps(row.values)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"the row cannot be written as JSON: {error}") from error


def read_to_judge(config: Mapping[str, Any]) -> OwnRows:
    """Reads the table that `faithkit score` is given, lists of passages as its detector was trained to read them."""
    from critic.requests import join_passages
    from faithkit.files.model_folder import TAGGER
    from faithkit.passages import number_passages
    from faithkit_workflows.detectors.loading import kind_of

    join = number_passages if kind_of(config["checkpoint"]) == TAGGER else join_passages
    options: dict[str, Any] = {name: config.get(name) for name in ("on_bad_row", "num_rows", "encoding")}
    return read_own_rows(config["path"], config["columns"], join=join, by=listed(config["by"]), **options)


def listed(by: str | Sequence[str] | None) -> list[str]:
    """Gives the columns to count by as a list."""
    return [by] if isinstance(by, str) else list(by or [])


def read_own_rows(
    path: str,
    columns: Mapping[str, str | None],
    *,
    join: Callable[[Sequence[str]], str],
    by: Sequence[str] = (),
    on_bad_row: str = "stop",
    num_rows: int | None = None,
    encoding: str | None = None,
    without: Sequence[str] = NOT_LABELLED,
    keys: str = "",
) -> OwnRows:
    """Opens a table and checks it; arguments and errors are those of `OwnRows`."""
    options: dict[str, Any] = {"on_bad_row": on_bad_row, "num_rows": num_rows, "encoding": encoding}
    rows = OwnRows(path=path, columns=columns, join=join, by=by, without=without, keys=keys, **options)
    rows.check()
    return rows
