"""Reads a user's table as examples, and writes its rows with their verdicts, in the format of the table.

The table is read in several passes and never held in memory. CSV, TSV, JSON, JSON lines and Parquet are written row by
row.
"""

import codecs
import csv
import io
import json
import math
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from construction.labels import PROBABILITY, VERDICT, added_names, escape_formula
from data_modules.datasets.pair_columns import AUTO, REQUIRED, Columns, LabelReader, check_column, find_columns
from data_modules.datasets.pairs import PairReader, counted_bad_rows, rows_with_reader
from data_modules.reading.files import SavedSplit, arrow_schema, saved_splits
from data_modules.reading.rows import BadRow, ReadReport, Row
from data_modules.reading.table_files import text_format
from faithkit.errors import UserError
from faithkit.evidence import add_evidence
from faithkit.files.atomic import atomic_file, disk_errors, dumps, write_json
from faithkit.files.jsonl import read_strict_json
from faithkit.files.run_folder import RunFolder
from faithkit.provenance.row_keys import group_hash
from faithkit.records import AXES, Example, Prediction, split_passages

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


ADDED = VERDICT
ANSWER, LANGUAGE = "response", "language"
Count = Callable[[Mapping[str, Any], Example | None, Prediction | None], object]
BATCH = 1024  # rows of Parquet that are written together
OUTPUT_RECORD = "output.json"  # in the run's folder: the path, size and time of the output file that the run wrote
OUTPUT_HINT = "choose another name, or delete it"


def write_scored(
    path: Path,
    rows: UserTable,
    predictions: Iterable[Prediction],
    count: Count | None = None,
    added: Sequence[str] = ADDED,
    *,
    escape_formulas: bool = False,
) -> None:
    """Writes the unchanged rows with label, probability and spans, in the format of the path's suffix.

    Existing columns keep their names; added columns with the same names are renamed
    (`construction.labels`).

    Args:
        predictions: Of the rows that can be judged, in their order.
        count: Is called with each row, its example and its prediction.
        added: Columns that are added; with ANSWER the predictions are answers, and the spans refer to them. With
            LANGUAGE a row has its language where the detector does not read it.
        escape_formulas: Writes an apostrophe before a cell of CSV or TSV that a spreadsheet would take for a formula.
    """
    every = names_added(rows, added)
    names = {name: every[name] for name in added}
    scored = _add_verdicts(rows, iter(predictions), count, names)
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = scored_schema(rows, added)
        columns = [name for name in rows.kinds if pa.types.is_string(schema.field(name).type)]
        with atomic_file(path) as file, disk_errors(path), pq.ParquetWriter(file, schema) as writer:
            while batch := list(islice(scored, BATCH)):
                for row in batch:
                    row |= {name: _cell(row[name]) for name in columns if row.get(name) is not None}
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
        return
    delimiter, mark = ",", b""
    source = Path(rows.path)
    if path.suffix == source.suffix == ".csv":  # in the dialect of the source
        delimiter = text_format(source, rows.encoding).delimiter
        with source.open("rb") as file:
            is_marked = file.read(3).startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        mark = codecs.BOM_UTF8 if is_marked else b""
    header = [*rows.kinds, *names.values()]
    _write(path, chain([mark], _lines(path.suffix, scored, header, delimiter, escape_formulas)))


def names_added(rows: UserTable, added: Sequence[str] = ADDED) -> dict[str, str]:
    """Returns the names of the added columns; those of answer and language are renamed independently of the verdict."""
    verdict = [name for name in added if name not in (ANSWER, LANGUAGE)]
    groups = ([ANSWER], verdict, [LANGUAGE])
    return {name: new for group in groups for name, new in added_names(rows.kinds, group).items()}


def print_renamed_columns(names: Mapping[str, str]) -> None:
    """Prints the names of the verdicts' columns if they were renamed."""
    if names["label"] != "label":
        renamed = ", ".join(names[name] for name in ADDED)
        print(f"note: the verdicts are in the columns {renamed}, since the table has one of {', '.join(ADDED)}")


def _add_verdicts(
    rows: UserTable, predictions: Iterator[Prediction], count: Count | None, names: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yields each row with its verdict; `names` has the names of the added columns."""
    for row, example in rows:
        prediction = None if example is None else next(predictions)
        assert prediction is None or example is None or prediction.id == example.id, "the order is that of the rows"
        if count is not None:
            count(row, example, prediction)
        found: dict[str, Any] = {}
        if example is not None and prediction is not None:
            text = prediction.text if ANSWER in names else example.response
            spans = [
                {
                    "start": s.start,
                    "end": s.end,
                    "text": text[s.start : s.end],
                    "label": s.label,
                    **{axis: getattr(s, axis) for axis in AXES},
                    "score": s.score,
                    "reason": s.evidence.reason if s.evidence else "",
                    "evidence": s.evidence.text if s.evidence else "",
                }
                for s in add_evidence(prediction, split_passages(example.knowledge), text).spans
            ]
            found = {ANSWER: text, "label": prediction.label, "probability": prediction.score, "spans": spans}
            found[LANGUAGE] = prediction.language
        yield {**row, **{column: found.get(name) for name, column in names.items()}}


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], delimiter: str) -> None:
    """Writes rows as .csv or .tsv, with the columns of all rows in order of appearance."""
    header = list(dict.fromkeys(name for row in rows for name in row))
    _write(path, _lines(".csv", rows, header, delimiter))


def _write(path: Path, parts: Iterable[bytes]) -> None:
    with atomic_file(path) as file:
        for part in parts:
            with disk_errors(path):
                file.write(part)


def _lines(
    suffix: str, rows: Iterable[Mapping[str, Any]], header: Sequence[str], delimiter: str, escape_formulas: bool = False
) -> Iterator[bytes]:
    """Yields the parts of a file in the format of its suffix; the delimiter is that of .csv."""
    if suffix in (".csv", ".tsv"):
        between = "\t" if suffix == ".tsv" else delimiter
        for cells in chain([list(header)], ([_cell(row.get(name)) for name in header] for row in rows)):
            cells = [escape_formula(cell) for cell in cells] if escape_formulas else cells
            text = io.StringIO(newline="")
            # csv writes a carriage return unquoted, but reads it as the end of a line.
            quoting: Any = csv.QUOTE_ALL if any("\r" in cell for cell in cells) else csv.QUOTE_MINIMAL
            csv.writer(text, delimiter=between, lineterminator="\n", quoting=quoting).writerow(cells)
            yield text.getvalue().encode()
    elif suffix == ".json":
        before = "[\n"
        for row in rows:
            written = _json(row, indent=2).replace("\n", "\n  ")
            yield f"{before}  {written}".encode()
            before = ",\n"
        yield b"\n]\n" if before == ",\n" else b"[]\n"
    else:
        for row in rows:
            yield f"{_json(row)}\n".encode()


def _json(row: Mapping[str, Any], indent: int | None = None) -> str:
    try:
        return dumps(row, indent=indent)
    except (TypeError, ValueError):  # dates, bytes and NaN of Parquet
        return dumps(_as_json(row), indent=indent)


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _as_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    plain = isinstance(value, str) or not isinstance(value, bool | int | float | list | dict)
    text = str(value) if plain else json.dumps(_as_json(value), ensure_ascii=False)
    # A lone surrogate of a JSON file is written as its escape.
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def scored_schema(rows: UserTable, added: Sequence[str] = ADDED) -> Any:
    """Returns the Parquet schema of the rows with the added columns."""
    import pyarrow as pa

    names = names_added(rows, added)
    existing = arrow_schema(rows.table)
    if not existing:  # integers are texts: they may exceed 64 bits
        plain = {frozenset({bool}): pa.bool_(), frozenset({float}): pa.float64(), frozenset({int, float}): pa.float64()}
        found = {name: frozenset(kinds - {type(None)}) for name, kinds in rows.kinds.items()}
        existing = pa.schema([(name, plain.get(kinds, pa.string())) for name, kinds in found.items()])
    fields: list[Any] = [("start", pa.int64()), ("end", pa.int64())]
    fields += [(name, pa.string()) for name in ("text", "label", *AXES)]
    fields += [("score", pa.float64()), ("reason", pa.string()), ("evidence", pa.string())]
    spans = pa.list_(pa.struct(fields))
    types = {ANSWER: pa.string(), "label": pa.string(), "probability": pa.float64(), "spans": spans}
    types[LANGUAGE] = pa.string()
    return pa.schema([*existing, *(pa.field(names[name], types[name]) for name in added)])


def check_output(run: RunFolder | None, config: Mapping[str, Any]) -> None:
    """Refuses to overwrite a file that the run has not written.

    Args:
        run: A resumed run; None for a new one.
        config: Its settings, with `output`.

    Raises:
        UserError: The file would be lost.
    """
    output = config.get("output")
    if output is None or not (path := Path(output).expanduser()).exists():
        return
    if run is None:
        raise UserError("output: this file exists", place=output, hint=OUTPUT_HINT)
    record = run.path / OUTPUT_RECORD
    found = read_strict_json(record, hint="delete it") if record.exists() else None
    # The stamp is missing where the run was interrupted while it wrote the file.
    written = found if isinstance(found, Mapping) else {}
    if written.get("path") != os.path.realpath(path) or written.get("stamp") not in (None, _stamp(path)):
        problem = "output: this file exists, and has changed since this run wrote it"
        raise UserError(problem, place=output, hint=f"{OUTPUT_HINT}: resume={run.path} output=NAME")


@contextmanager
def record_output(run: RunFolder, output: str | None) -> Iterator[None]:
    """Records before and after writing that the run writes the file, so that a resumed run may overwrite it.

    Raises:
        UserError: Another program wrote the file while the rows were judged.
    """
    if output is None:  # the file is in the run's folder
        yield
        return
    check_output(run, {"output": output})
    path = Path(output).expanduser()
    whole = os.path.realpath(path)
    write_json(run.path / OUTPUT_RECORD, {"path": whole, "stamp": None})
    yield
    write_json(run.path / OUTPUT_RECORD, {"path": whole, "stamp": _stamp(path)})


def _stamp(path: Path) -> list[int]:
    """Returns size and time of the file; a hash would read it again."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]
