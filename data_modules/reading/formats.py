"""The file formats of raw data: JSON lines, JSON lists, one JSON object, TSV without quoting, CSV with quoting, XLSX.

A parser yields the line and the values of every data row. A row that cannot be parsed is yielded as `Broken`, in its
place, so that the numbers (and so the ids) of the rows after it do not shift.

An .xlsx workbook is a ZIP archive of XML files; formulas and macros are not run. Its cells are read as a CSV file would
hold them, so that a label is the same whether it was typed as 1, 1.0 or text. Of several sheets the one with the most
columns is read, the first of equal ones. A file that would give other texts than a reader sees is refused: merged
cells, and formulas without results.
"""

import csv
import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import SPACE, parse_lines
from faithkit.packages import install_hint

csv.field_size_limit(2**31 - 1)  # a field of 100,000 characters is legal: the default limit of 131,072 is not ours
WRITTEN = (".csv", ".tsv", ".jsonl", ".json", ".parquet")  # formats of users' tables
XLSX = ".xlsx"
SUFFIXES = (*WRITTEN, XLSX)  # and those that are only read
FETCH = "fetch the file again"
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
MAX_BYTES = 1 << 30  # of all files in the archive, unpacked: a small archive can claim any size
BLOCK, OVERLAP = 1 << 20, 1 << 10
ENCRYPTED = bytes.fromhex("d0cf11e0a1b11ae1")  # also begins workbooks from before 2007
# In a sheet's XML: a merged range, or a formula that the program which wrote it did not compute.
_UNREADABLE = re.compile(rb'<(?:\w+:)?mergeCell\s[^>]*?ref="([^"]+)"|</(?:\w+:)?f>\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>')
CSV_HINT = "save the sheet as CSV, and give that file"

log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class Broken:
    """A data row that cannot be parsed."""

    problem: str
    raw: object


Parsed = tuple[int, Mapping[str, Any] | Broken]


def parse_json(path: Path) -> Iterator[Parsed]:
    """Parses a JSON list of objects or JSON lines, distinguished by the first character; a single object is one row.

    The suffix says nothing here: several corpora name JSON lines `.json`, and DNLI names a list `.jsonl`.
    """
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        while (first := file.read(1)) and first in SPACE:
            pass
    return _json_list(path) if first == "[" else _json_lines(path)


def _json_lines(path: Path) -> Iterator[Parsed]:
    for line, text, value in parse_lines(path):
        if not isinstance(value, Exception):
            yield line, _object(value)
        elif line == 1 and text.strip(SPACE) == "{":
            try:
                whole = json.loads(path.read_text(encoding="utf-8-sig"))
            except (ValueError, RecursionError) as error:
                raise UserError(
                    f"the file begins as one JSON object, but is not one: broken JSON{_column(error)}",
                    place=f"{path}, line {getattr(error, 'lineno', 1)}",
                    hint="give the original file of the corpus: a JSON list, one object a line, or one object",
                ) from error
            yield line, whole
            return
        else:
            yield line, Broken(f"broken JSON{_column(value)}", text)


def _json_list(path: Path) -> Iterator[Parsed]:
    text = path.read_text(encoding="utf-8-sig")
    decoder = json.JSONDecoder()
    position, line, counted, first = text.index("[") + 1, 1, 0, True
    while True:  # item by item, so that each knows its line
        position = _skip(text, position)
        if text[position : position + 1] == "]":
            break
        if not first and text[position : position + 1] == ",":
            position = _skip(text, position + 1)
        elif not first and position < len(text):
            raise UserError("broken JSON list: no comma between two items", place=_at(path, text, position), hint=FETCH)
        if position >= len(text):
            raise UserError("the JSON list is cut short", place=_at(path, text, position), hint=FETCH)
        line += text.count("\n", counted, position)
        counted, first = position, False
        try:
            values, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            # The text after a broken item cannot be separated from it, so skipping is not offered here.
            cut = isinstance(error, json.JSONDecodeError) and _skip(text, error.pos) >= len(text)
            problem = "the JSON list is cut short" if cut else f"broken JSON{_column(error)}"
            place = getattr(error, "pos", position)
            raise UserError(problem, place=_at(path, text, place), hint=FETCH) from error
        yield line, _object(values)
    if text[position + 1 :].strip(SPACE):
        raise UserError("text after the end of the JSON list", place=_at(path, text, position + 1), hint=FETCH)


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in SPACE:
        position += 1
    return position


def _at(path: Path, text: str, position: int) -> str:
    return f"{path}, line {text.count(chr(10), 0, position) + 1}"


def _column(error: Exception) -> str:
    return f" at column {error.colno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else f": {error}"


def _object(values: Any) -> Mapping[str, Any] | Broken:
    return values if isinstance(values, dict) else Broken(f"a row must be a JSON object, got {shorten(values)}", values)


def parse_tsv(path: Path, *, encoding: str = "utf-8-sig") -> Iterator[Parsed]:
    """Parses tab-separated rows under a header; quotes are ordinary characters, lines end in LF or CRLF."""
    with path.open(encoding=encoding, newline="\n") as file:
        header = check_header(path, tsv_cells(file.readline()))
        for line, text in enumerate(file, start=2):
            if text.rstrip("\r\n"):
                yield line, table_row(header, tsv_cells(text), "tab")


def tsv_cells(line: str) -> list[str]:
    """Splits a line at its tabs; quotes are ordinary characters."""
    return line.removesuffix("\n").removesuffix("\r").split("\t")


def parse_csv(
    path: Path, *, delimiter: str = ",", encoding: str = "utf-8-sig", newline: str = "", hint: str = FETCH
) -> Iterator[Parsed]:
    """Parses separated rows under a header, quoted as RFC 4180 says: a quoted cell may hold line ends."""
    with path.open(encoding=encoding, newline=newline) as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        line = 1
        try:
            header = check_header(path, next(reader, [""]))
            line = reader.line_num + 1
            for cells in reader:
                if cells:
                    yield line, table_row(header, cells, SEPARATORS[delimiter])
                line = reader.line_num + 1
        except csv.Error as error:
            raise UserError(
                f"broken {path.suffix[1:].upper()}: {error}", place=f"{path}, line {line}", hint=hint
            ) from error


def check_header(path: Path, names: list[str]) -> list[str]:
    """Returns the names of a table's columns, which must differ."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(
            f"the header names {shorten(twice[0])} twice",
            place=f"{path}, line 1",
            hint="check that the file is a table with a header line",
        )
    return names


def table_row(header: list[str], cells: list[str], separator: str) -> Mapping[str, Any] | Broken:
    """Returns a row its names; broken where it has more or fewer cells than the header."""
    if len(cells) != len(header):
        return Broken(f"{len(cells)} {separator}-separated fields where the header has {len(header)}", cells)
    return dict(zip(header, cells, strict=True))


def read_sections(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields the sections of a text file with wordings: `[title]`, then lines; `#` begins a comment."""
    title, lines = "", list[str]()
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            if title:
                yield title, lines
            title, lines = line.strip("[]"), []
        elif not line.startswith("#"):
            lines.append(line)
    yield title, lines


def parse_xlsx(path: Path) -> Iterator[Parsed]:
    """Parses the rows of a sheet under its header; empty rows are skipped, the line is the row's number in the sheet.

    Raises:
        UserError: It is damaged, protected or too large, openpyxl is missing, or no sheet can be read as a table.
    """
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        hint = f"{install_hint('openpyxl')}; or {CSV_HINT}"
        raise UserError("reading .xlsx needs the package openpyxl", place=str(path), hint=hint) from error
    with path.open("rb") as file:
        begin = file.read(len(ENCRYPTED))
    if begin == ENCRYPTED:
        problem = "the workbook is protected by a password, or of the old format .xls"
        hint = f"save it without a password as .xlsx; or {CSV_HINT}"
        raise UserError(problem, place=str(path), hint=hint)
    if not is_zipfile(path):
        raise _damaged(path, "its end is missing" if begin.startswith(b"PK") else "not a ZIP archive")
    with ZipFile(path) as archive:
        size = sum(part.file_size for part in archive.infolist())
    if size > MAX_BYTES:
        problem = f"the workbook unpacks to {size:,} bytes; the limit is {MAX_BYTES:,}"
        raise UserError(problem, place=str(path), hint=CSV_HINT)
    try:
        book = load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            sheet, line, header = _choose_sheet(path, book.worksheets)
            with ZipFile(path) as archive, archive.open(sheet._worksheet_path) as file:
                end = b""
                while block := file.read(BLOCK):
                    if found := _UNREADABLE.search(end + block):
                        merged = (
                            f"the cells {found[1].decode()} are merged"
                            if found[1]
                            else "a formula has no stored result"
                        )
                        do = "separate the cells" if found[1] else "open and save it in a spreadsheet program"
                        place = f"{path}, sheet {sheet.title}"
                        raise UserError(f"{merged}: their values are unknown", place=place, hint=f"{do}; or {CSV_HINT}")
                    end = block[-OVERLAP:]
            for number, cells in _filled_rows(sheet, line + 1):
                if any(cell.strip() for cell in cells[len(header) :]):
                    yield number, Broken(f"{len(cells)} cells where the header has {len(header)}", cells)
                else:
                    yield number, dict(zip(header, cells + [""] * (len(header) - len(cells)), strict=False))
        finally:
            book.close()
    except UserError:
        raise
    except Exception as error:  # openpyxl raises what its parts raise; the user's remedy is the same
        raise _damaged(path, f"{type(error).__name__}: {shorten(str(error))}") from error


def _damaged(path: Path, problem: str) -> UserError:
    return UserError(f"not a whole .xlsx workbook: {problem}", place=str(path), hint=f"fetch it again; or {CSV_HINT}")


def _choose_sheet(path: Path, sheets: list[Any]) -> tuple[Any, int, list[str]]:
    """Returns the sheet with the most columns, with the row of its header and the columns' names."""
    found = []
    for sheet in sheets:
        sheet.reset_dimensions()  # some programs write wrong ones, and rows would be cut
        if first := next(_filled_rows(sheet), None):
            found.append((sheet, *first))
    if not found:
        raise UserError("the workbook has no rows", place=str(path), hint="check that it was saved")
    sheet, line, header = max(found, key=lambda one: sum(map(bool, one[2])))
    if len(found) > 1:
        titles = ", ".join(repr(one[0].title) for one in found)
        log.info("%s: reads sheet %r of %s", path, sheet.title, titles)
    while not header[-1].strip():
        header.pop()
    names = [name.strip() or f"(column {place})" for place, name in enumerate(header, start=1)]
    return sheet, line, check_header(path, names)


def _filled_rows(sheet: Any, start: int = 1) -> Iterator[tuple[int, list[str]]]:
    for number, cells in enumerate(sheet.iter_rows(min_row=start, values_only=True), start=start):
        # Spreadsheets store 1 and 1.0 alike.
        plain = (int(cell) if isinstance(cell, float) and cell.is_integer() else cell for cell in cells)
        texts = ["" if cell is None else str(cell) for cell in plain]
        if any(text.strip() for text in texts):
            yield number, texts
