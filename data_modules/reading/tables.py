"""Tables of one's own, read row by row: CSV, TSV, JSON lines, JSON, Parquet, and what `datasets` saved.

Of a text its encoding and the separator of its columns are found by its beginning, and of a TSV what its quotes are;
what cannot be told apart is refused with what says it. Only a JSON list is read whole.
"""

import codecs
import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from data_modules.reading.files import File
from data_modules.reading.formats import SEPARATORS, SUFFIXES, Parsed, parse_csv, parse_json
from data_modules.reading.own_tsv import parse_own_tsv
from data_modules.reading.rows import Parser, ReadReport, Row, read_rows
from data_modules.reading.saved_datasets import parse_parquet
from data_modules.reading.shard_file import ShardFile
from faithkit.errors import UserError, shorten

__all__ = ["SUFFIXES", "TextFormat", "read_table", "text_format"]

MARKS = {  # what a file begins with, the longer ones first: UTF-32's begins as UTF-16's does
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
UTF_8 = "utf-8-sig"
LOOKED_AT = 4096  # bytes that tell the encoding
MOST_ZEROS = 4  # one byte of so many: a text may hold some
TRIED_ROWS = 20  # that tell the separator
QUOTING = 'write a quote inside a quoted cell twice (""), and close every quoted cell'


@dataclass(frozen=True, slots=True)
class TextFormat:
    """The encoding of a file, and of a CSV the separator of its columns."""

    encoding: str
    delimiter: str = ","

    def __str__(self) -> str:
        found = [] if self.encoding == UTF_8 else [self.encoding]
        found += [] if self.delimiter == "," else [f"columns parted by a {SEPARATORS[self.delimiter]}"]
        return ", ".join(found)


def read_table(table: File, report: ReadReport, encoding: str | None = None, start: int = 0) -> Iterator[Row]:
    """Rows of a table.

    Args:
        encoding: Of CSV and TSV; None finds UTF-8 and what has a byte order mark.
        start: Rows between the first one and this one need not be given: of Parquet they are passed over.

    Raises:
        UserError: The file is missing, empty, broken, of another kind or of another encoding.
    """
    if isinstance(table, ShardFile):
        return _rows_of_shard(table, report, encoding, start)
    if not isinstance(table, Path):
        return table.rows()
    if start and table.suffix == ".parquet":
        # Such files have no lines, so the line is the row's number, which is counted here from what is read alone.
        rows = read_rows(table, report, partial(parse_parquet, start=start))
        return (replace(row, number=row.line - 1) for row in rows)
    parsers: dict[str, Parser] = {
        ".csv": partial(_parse_csv, encoding=encoding, keys=report.keys),
        ".tsv": partial(_parse_tsv, encoding=encoding, keys=report.keys),
        ".txt": partial(_parse_tsv, encoding=encoding, keys=report.keys),
        ".parquet": parse_parquet,
        **dict.fromkeys((".jsonl", ".json"), parse_json),
    }
    return read_rows(table, report, parsers.get(table.suffix))


def _rows_of_shard(table: ShardFile, report: ReadReport, encoding: str | None, start: int) -> Iterator[Row]:
    with table.opened() as path:
        for row in read_table(path, report, encoding, start):
            yield replace(row, file=str(table))


def text_format(path: Path, encoding: str | None = None, keys: str = "data.") -> TextFormat:
    """Finds the encoding of a CSV or TSV file, and of a CSV the separator of its columns.

    Args:
        keys: How the keys of the settings begin that hints name.
    """
    known = encoding or _find_encoding(path, keys)
    try:
        if not codecs.lookup(known)._is_text_encoding:
            raise LookupError
    except LookupError:
        hint = f"use {keys}encoding=utf-8, cp1252, latin-1, utf-16 or another that Python knows"
        raise UserError(f"there is no encoding {shorten(known)}", place=str(path), hint=hint) from None
    return TextFormat(known, _find_delimiter(path, known) if path.suffix == ".csv" else "\t")


def _find_encoding(path: Path, keys: str) -> str:
    with path.open("rb") as file:
        begin = file.read(LOOKED_AT)
    for mark, name in MARKS.items():
        if begin.startswith(mark):
            return name
    if begin.count(b"\0") * MOST_ZEROS > len(begin):
        problem = f"not UTF-8 text: a zero byte at offset {begin.find(0)}, and many more"
        hint = f"if it is UTF-16 without its mark: {keys}encoding=utf-16-le"
        raise UserError(problem, place=str(path), hint=hint)
    return UTF_8


def _find_delimiter(path: Path, encoding: str) -> str:
    """Takes the separator by which the first rows have most columns, and all of them as many."""
    best, most = ",", 1
    for delimiter in SEPARATORS:
        with path.open(encoding=encoding, errors="replace", newline="") as file:
            try:
                rows = [row for row in islice(csv.reader(file, delimiter=delimiter), TRIED_ROWS) if row]
            except csv.Error:
                continue
        # A broken row must not hide the separator: it is told with its line when it is read.
        width = len(rows[0]) if rows else 0
        if width > most and sum(len(row) == width for row in rows) * 2 > len(rows):
            best, most = delimiter, width
    return best


def _parse_csv(path: Path, *, encoding: str | None, keys: str) -> Iterator[Parsed]:
    form = text_format(path, encoding, keys)
    with _encoding_told(path, form.encoding, keys):
        yield from parse_csv(path, delimiter=form.delimiter, encoding=form.encoding, hint=QUOTING)


def _parse_tsv(path: Path, *, encoding: str | None, keys: str) -> Iterator[Parsed]:
    form = text_format(path, encoding, keys)
    with _encoding_told(path, form.encoding, keys):
        yield from parse_own_tsv(path, encoding=form.encoding)


@contextmanager
def _encoding_told(path: Path, encoding: str, keys: str) -> Iterator[None]:
    """Tells text of another encoding by its line, with the setting that would read it."""
    try:
        yield
    except UnicodeError as error:
        if encoding != UTF_8:
            hint = f"leave {keys}encoding out where the file is UTF-8, or name another"
            raise UserError(f"not {encoding} text: {shorten(str(error))}", place=str(path), hint=hint) from error
        line, column, shown = _first_other_byte(path)
        hint = f"{keys}encoding=cp1252 reads it as {shown!r}; or save the file as UTF-8"
        problem = f"not UTF-8 text: the byte at position {column} of the line"
        raise UserError(problem, place=f"{path}, line {line}", hint=hint) from error


def _first_other_byte(path: Path) -> tuple[int, int, str]:
    """The line and the position of the first byte that is not UTF-8, and the words around it in Windows' encoding."""
    with path.open("rb") as file:
        for line, data in enumerate(file, start=1):
            try:
                data.decode()
            except UnicodeDecodeError as error:
                around = data[max(0, error.start - 15) : error.start + 15].decode("cp1252", errors="replace")
                return line, error.start + 1, " ".join(around.split())
    return 1, 1, ""  # changed since
