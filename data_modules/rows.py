"""Raw rows with their place in a file, and what happens to bad ones: nothing is lost in silence.

Every reader yields `Row`s that know their file and line. A dataset file takes values from a row by name; a value that is
missing or wrong raises `BadRow`, which stops the run with file, line, field and mend, or, with `on_bad_row=skip`, is
counted and kept in the report's rejects.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import UserError, shorten

csv.field_size_limit(2**31 - 1)  # a field of 100,000 characters is legal: the default limit of 131,072 is not ours


class BadRow(ValueError):
    """One row is wrong; the row's place is added where it is caught."""

    def __init__(self, problem: str, *, mend: str = "correct the row, or set data.on_bad_row=skip to leave it out"):
        super().__init__(problem)
        self.mend = mend


@dataclass(frozen=True, slots=True)
class Row:
    """One raw row.

    Args:
        values: The row as its file has it.
        file: Path of the file, or `hub:NAME`.
        number: Position among the data rows, from 0: the same for everyone who reads the file.
        line: Line in the file, from 1.
    """

    values: Mapping[str, Any]
    file: str
    number: int
    line: int

    @property
    def default_id(self) -> str:
        """`<file stem>:<row>`, for corpora without ids of their own."""
        return f"{Path(self.file).stem}:{self.number}"

    @property
    def place(self) -> str:
        return f"{self.file}, line {self.line}"

    def text(self, name: str, *, empty_ok: bool = False) -> str:
        """The text under `name`; it must be there, be text and, unless `empty_ok`, hold a visible character."""
        value = self.values.get(name)
        if value is None and empty_ok:
            return ""
        if not isinstance(value, str):
            have = ", ".join(list(self.values)[:8])
            problem = f"field {name!r} must be text, got {shorten(value)} (the row has: {have})"
            raise BadRow(problem)
        if not empty_ok and not value.strip():
            raise BadRow(f"field {name!r} is empty")
        return value

    def choice(self, name: str, choices: Mapping[str, Any]) -> Any:
        """The value that `choices` gives for the text under `name` (spaces around it and case do not matter)."""
        key = " ".join(str(self.values.get(name)).split()).lower()
        if key not in choices:
            known = ", ".join(repr(choice) for choice in choices)
            raise BadRow(f"field {name!r} is {shorten(self.values.get(name))}; known: {known}")
        return choices[key]


@dataclass(slots=True)
class ReadReport:
    """What reading did with the rows: counted by outcome, rejects kept with their place.

    Args:
        on_bad_row: `stop` raises at the first bad row; `skip` counts it and goes on.
    """

    on_bad_row: str = "stop"
    counts: Counter[str] = field(default_factory=Counter)
    rejects: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.on_bad_row not in ("stop", "skip"):
            raise UserError(f"data.on_bad_row is {self.on_bad_row!r}", mend="use stop or skip")

    def count(self, outcome: str, by: int = 1) -> None:
        """Counts an outcome, for example `dropped: generic`."""
        self.counts[outcome] += by

    def reject(self, file: str, line: int, error: BadRow, values: object = None) -> None:
        """Stops the run, or counts and keeps the row, as `on_bad_row` says."""
        if self.on_bad_row == "stop":
            raise UserError(str(error), place=f"{file}, line {line}", mend=error.mend) from error
        self.count("rejected: bad row")
        self.rejects.append({"file": file, "line": line, "problem": str(error), "row": shorten(values, 2000)})


def read_rows(path: Path, report: ReadReport) -> Iterator[Row]:
    """Rows of a file by its suffix: .jsonl, .json (a list, or JSON lines), .tsv (unquoted) and .csv (quoted).

    Raises:
        UserError: The file is missing, empty, not UTF-8 or of another layout.
    """
    readers = {".jsonl": _jsonl, ".json": _json, ".tsv": _tsv, ".csv": _csv, ".txt": _tsv}
    if path.suffix not in readers:
        raise UserError(f"cannot read files of kind {path.suffix!r}", place=str(path), mend="use " + ", ".join(readers))
    number = -1
    try:
        for number, (line, values) in enumerate(readers[path.suffix](path, report)):
            yield Row(values, str(path), number, line)
    except FileNotFoundError as error:
        raise UserError("the file does not exist", place=str(path), mend="check data.path") from error
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 text: byte {error.object[error.start]:#x} at offset {error.start}"
        raise UserError(problem, place=str(path), mend="convert the file to UTF-8") from error
    if number < 0 and not report.rejects:
        raise UserError("the file has no data rows", place=str(path), mend="check that the download is complete")


def _jsonl(path: Path, report: ReadReport) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(encoding="utf-8-sig") as file:
        for line, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                values = json.loads(text)
            except json.JSONDecodeError as error:
                broken = BadRow(f"broken JSON at column {error.colno}: {error.msg}")
                report.reject(str(path), line, broken, text)
                continue
            yield from _mapping(path, report, line, values)


def _json(path: Path, report: ReadReport) -> Iterator[tuple[int, Mapping[str, Any]]]:
    text = path.read_text(encoding="utf-8-sig")
    if not text.strip():
        return
    if text.lstrip()[0] != "[":  # several corpora give JSON lines the suffix .json
        yield from _jsonl(path, report)
        return
    decoder, position, line = json.JSONDecoder(), text.index("[") + 1, 1
    counted = 0
    while True:  # item by item, so that each knows its line
        while position < len(text) and text[position] in " \t\r\n,":
            position += 1
        line += text.count("\n", counted, position)
        counted = position
        if position >= len(text):
            raise UserError("the JSON list is cut short", place=f"{path}, line {line}", mend="fetch the file again")
        if text[position] == "]":
            return
        try:
            values, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            # What follows a broken item cannot be told apart from it, so skipping is not offered here.
            raise UserError(
                f"broken JSON: {error.msg}", place=f"{path}, line {error.lineno}", mend="fetch the file again"
            ) from error
        yield from _mapping(path, report, line, values)


def _mapping(path: Path, report: ReadReport, line: int, values: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if isinstance(values, dict):
        yield line, values
    else:
        report.reject(str(path), line, BadRow(f"a row must be a JSON object, got {shorten(values)}"), values)


def _tsv(path: Path, report: ReadReport) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        header = file.readline().rstrip("\r\n").split("\t")
        for line, text in enumerate(file, start=2):
            if not text.strip():
                continue
            cells = text.rstrip("\r\n").split("\t")
            if len(cells) != len(header):
                problem = f"{len(cells)} tab-separated fields where the header has {len(header)}"
                report.reject(str(path), line, BadRow(problem), text)
                continue
            yield line, dict(zip(header, cells, strict=True))


def _csv(path: Path, report: ReadReport) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        header = next(reader, [])
        start = reader.line_num + 1
        try:
            for cells in reader:
                line, start = start, reader.line_num + 1
                if not cells:
                    continue
                if len(cells) != len(header):
                    problem = f"{len(cells)} comma-separated fields where the header has {len(header)}"
                    report.reject(str(path), line, BadRow(problem), cells)
                    continue
                yield line, dict(zip(header, cells, strict=True))
        except csv.Error as error:
            raise UserError(f"broken CSV: {error}", place=f"{path}, line {start}", mend="fetch the file again") from error
