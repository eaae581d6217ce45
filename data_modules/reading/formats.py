"""The file formats of raw data: JSON lines, JSON lists, one JSON object, TSV without quoting, CSV with quoting.

A parser yields the line and the values of every data row. A row that cannot be parsed is yielded as `Broken`, in its
place, so that the numbers (and so the ids) of the rows after it do not shift.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import SPACE, parse_lines

csv.field_size_limit(2**31 - 1)  # a field of 100,000 characters is legal: the default limit of 131,072 is not ours
WRITTEN = (".csv", ".tsv", ".jsonl", ".json", ".parquet")  # formats of users' tables
SUFFIXES = (*WRITTEN, ".xlsx")  # and those that are only read
FETCH = "fetch the file again"
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


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
