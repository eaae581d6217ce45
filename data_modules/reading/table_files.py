"""Users' tables, read row by row: CSV, TSV, JSON lines, JSON, Parquet, XLSX, and what `datasets` saved.

JSON may have conversations, of which each turn of the assistant becomes a row (`data_modules.reading.conversations`).

The encoding of a text file and the separator of its columns are detected from its beginning. A TSV's quotes may
enclose cells (as pandas, csv.writer and spreadsheets write them, RFC 4180) or be ordinary characters (as in the files
of BEGIN and GLUE): the first row that only one of the two can have written decides for the whole file. A file that
cannot be decided is refused with what to type. Only a JSON list is read whole.
"""

import codecs
import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from data_modules.reading.conversations import expand_conversations
from data_modules.reading.files import File, parse_parquet
from data_modules.reading.formats import (
    SEPARATORS,
    Parsed,
    parse_csv,
    parse_tsv,
    tsv_cells,
)
from data_modules.reading.rows import Parser, ReadReport, Row, read_rows
from data_modules.reading.shards import ShardFile
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import find_other_byte

BYTE_ORDER_MARKS = {  # the longer ones first: UTF-32's begins as UTF-16's does
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
UTF_8 = "utf-8-sig"
BLOCK = 1 << 20
QUOTE = '"'
CELL = r'"[^"]*(?:""[^"]*)*"|[^"\t\n]*'
ROW = re.compile(rf"(?:{CELL})(?:\t(?:{CELL}))*\r?\n?")  # as a writer that encloses cells writes it
QUOTING = 'write a quote inside a quoted cell twice (""), and close every quoted cell'


@dataclass(frozen=True, slots=True)
class TextFormat:
    """The encoding of a file, and the separator of a CSV's columns."""

    encoding: str
    delimiter: str = ","

    def __str__(self) -> str:
        found = [] if self.encoding == UTF_8 else [self.encoding]
        found += [] if self.delimiter == "," else [f"columns separated by a {SEPARATORS[self.delimiter]}"]
        return ", ".join(found)


def read_table(table: File, report: ReadReport, encoding: str | None = None, start: int = 0) -> Iterator[Row]:
    """Reads the rows of a table.

    Args:
        encoding: Of CSV and TSV; None detects UTF-8 and byte order marks.
        start: Rows between the first one and this one may be left out: Parquet files skip them.

    Raises:
        UserError: The file is missing, empty, broken, of another kind or of another encoding.
    """
    if isinstance(table, ShardFile):
        with table.opened() as path:
            for row in read_table(path, report, encoding, start):
                yield replace(row, file=str(table))
        return
    if not isinstance(table, Path):
        yield from table.rows()
        return
    if start and table.suffix == ".parquet":
        # Parquet has no lines: the line is the row's number, and `read_rows` would count only the rows read here.
        for row in read_rows(table, report, partial(parse_parquet, start=start)):
            yield replace(row, number=row.line - 1)
        return
    parse: Parser | None = None  # that of its suffix
    if table.suffix in (".csv", ".tsv", ".txt"):
        parse = partial(_parse_text, encoding=encoding, keys=report.keys)
    elif table.suffix == ".parquet":
        parse = parse_parquet
    rows = read_rows(table, report, parse)
    yield from expand_conversations(rows, report) if table.suffix in (".jsonl", ".json") else rows


def text_format(path: Path, encoding: str | None = None, keys: str = "data.") -> TextFormat:
    """Detects the encoding of a CSV or TSV file, and the separator of a CSV's columns.

    Args:
        keys: The prefix of the settings' keys in hints.
    """
    if not encoding:
        with path.open("rb") as file:
            begin = file.read(4096)
        encoding = next((name for mark, name in BYTE_ORDER_MARKS.items() if begin.startswith(mark)), UTF_8)
        if encoding == UTF_8 and begin.count(b"\0") * 4 > len(begin):
            problem = f"not UTF-8 text: a zero byte at offset {begin.find(0)}, and many more"
            hint = f"if it is UTF-16 without its mark: {keys}encoding=utf-16-le"
            raise UserError(problem, place=str(path), hint=hint)
    try:
        if not codecs.lookup(encoding)._is_text_encoding:
            raise LookupError
    except LookupError:
        hint = f"use {keys}encoding=utf-8, cp1252, latin-1, utf-16 or another that Python knows"
        raise UserError(f"there is no encoding {shorten(encoding)}", place=str(path), hint=hint) from None
    if path.suffix != ".csv":
        return TextFormat(encoding, "\t")
    # The separator that gives the first rows the most columns, and most of them the same number.
    best, most = ",", 1
    for delimiter in SEPARATORS:
        with path.open(encoding=encoding, errors="replace", newline="") as text:
            try:
                rows = [row for row in islice(csv.reader(text, delimiter=delimiter), 20) if row]
            except csv.Error:
                continue
        # A broken row must not hide the separator: it is reported with its line when it is read.
        width = len(rows[0]) if rows else 0
        if width > most and sum(len(row) == width for row in rows) * 2 > len(rows):
            best, most = delimiter, width
    return TextFormat(encoding, best)


def _parse_text(path: Path, *, encoding: str | None, keys: str) -> Iterator[Parsed]:
    """Parses a CSV or TSV file; text of another encoding is reported by its line, with the setting to use."""
    form = text_format(path, encoding, keys)
    try:
        if path.suffix == ".csv":
            yield from parse_csv(path, delimiter=form.delimiter, encoding=form.encoding, hint=QUOTING)
        elif _quotes_enclose_cells(path, form.encoding):
            yield from parse_csv(path, delimiter="\t", encoding=form.encoding, newline="\n", hint=QUOTING)
        else:
            yield from parse_tsv(path, encoding=form.encoding)
    except UnicodeError as error:
        if form.encoding != UTF_8:
            problem = f"not {form.encoding} text: {shorten(str(error))}"
            hint = f"leave {keys}encoding out if the file is UTF-8, or name another"
            raise UserError(problem, place=str(path), hint=hint) from error
        line, index, data = find_other_byte(path)
        around = " ".join(data[max(0, index - 15) : index + 15].decode("cp1252", errors="replace").split())
        hint = f"{keys}encoding=cp1252 reads it as {around!r}; or save the file as UTF-8"
        problem = f"not UTF-8 text: the byte at position {index + 1} of the line"
        raise UserError(problem, place=f"{path}, line {line}", hint=hint) from error


def _quotes_enclose_cells(path: Path, encoding: str) -> bool:
    """Decides whether the quotes of a TSV enclose cells, or are ordinary characters.

    Raises:
        UserError: Each row can be read both ways.
    """
    with path.open("rb") as raw:
        if not any(b'"' in block for block in iter(partial(raw.read, BLOCK), b"")):
            return False
    width, unclear = 0, ""
    lines: list[str] = []  # of the row that is being read
    with path.open(encoding=encoding, newline="\n") as file:
        rows = csv.reader(_collected(file, lines), delimiter="\t", strict=True)
        try:
            for cells in rows:
                text = "".join(lines)
                if QUOTE in text:
                    if ROW.fullmatch(text) is None:
                        return False
                    if not width:  # names of columns hold no quotes
                        return True
                    is_plain = all(len(tsv_cells(line)) == width for line in lines if line.rstrip("\r\n"))
                    # Enclosing a cell for its content doubles its quotes, or keeps a carriage return in it.
                    has_content = any(QUOTE in cell or "\r" in cell for cell in cells)
                    if is_plain != (len(cells) == width) or (is_plain and has_content):
                        return len(cells) == width
                    unclear = unclear or f"{path}, line {rows.line_num - len(lines) + 1}"
                width = width or len(cells)
                lines.clear()
        except csv.Error:
            return False
    if not unclear:  # the byte of a quote was a part of another character
        return False
    csv_name, jsonl_name = path.with_suffix(".csv").name, path.with_suffix(".jsonl").name
    hint = (
        f"if they only enclose cells: rename the file to {csv_name}; its tabs are detected\n"
        f'  if they belong to the texts: pandas.read_csv("{path.name}", sep="\\t", quoting=3)'
        f'.to_json("{jsonl_name}", orient="records", lines=True)'
    )
    problem = "quotes around whole cells: no row shows whether they only enclose cells or belong to the texts"
    raise UserError(problem, place=unclear, hint=hint)


def _collected(file: Iterable[str], lines: list[str]) -> Iterator[str]:
    """Yields the lines of a file, and adds each to `lines`, which is emptied after each row; ends in an endless row."""
    for line in file:
        lines.append(line)
        if len(lines) > 1000:  # a quote that is open for longer encloses no cell
            return
        yield line
