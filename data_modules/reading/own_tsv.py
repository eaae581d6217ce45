"""Tab-separated tables of one's own, whose quotes may enclose cells or be ordinary characters: their rows tell which.

pandas, csv.writer and spreadsheets enclose a cell by quotes where it holds a quote, a tab or a line end, and write its
own quotes twice (RFC 4180); the files of BEGIN and GLUE have their quotes as the text has them. As long as no row has a
quote the two are the same. From the first one on, the first row that only one of them can have written decides for the
whole file, and where there is none the file is refused.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from data_modules.reading.formats import Parsed, check_header, table_row, tsv_cells, without_end
from faithkit.errors import UserError, shorten

TAB, QUOTE = "tab", '"'
MOST_LINES = 1000  # of what may be the first row with quoted cells: a quote that is open for longer encloses none
_CELL = r'"[^"]*(?:""[^"]*)*"|[^"\t\n]*'
_CELLS = re.compile(rf"(?:^|\t)({_CELL})")
_ROW = re.compile(rf"(?:{_CELL})(?:\t(?:{_CELL}))*")
QUOTING = 'write a quote inside a quoted cell twice (""), and enclose every cell that has one'


def parse_own_tsv(path: Path, *, encoding: str) -> Iterator[Parsed]:
    """Parses tab-separated rows under a header, lines ending in LF or CRLF.

    Raises:
        UserError: Quotes may enclose cells or belong to them, or those that enclose cells are broken.
    """
    with path.open(encoding=encoding, newline="\n") as file:
        first = file.readline()
        if QUOTE in first and _encloses_cells(path, encoding):
            yield from _parse_quoted(path, encoding)
            return
        header = check_header(path, tsv_cells(first))
        told = QUOTE in first
        for line, text in enumerate(file, start=2):
            if not told and QUOTE in text:
                if _encloses_cells(path, encoding):
                    yield from (row for row in _parse_quoted(path, encoding) if row[0] >= line)
                    return
                told = True
            if text.rstrip("\r\n"):
                yield line, table_row(header, tsv_cells(text), TAB)


def _encloses_cells(path: Path, encoding: str) -> bool:
    """True if quotes enclose cells, False if they are ordinary characters.

    Raises:
        UserError: Each row can be read both ways.
    """
    width, unclear = 0, ""
    with path.open(encoding=encoding, newline="\n") as file:
        line = 1
        for lines in _rows(file, MOST_LINES):
            text = without_end("".join(lines))
            if not width:
                width = len(tsv_cells(text))
                if QUOTE in text:  # the names of columns hold none
                    return _ROW.fullmatch(text) is not None
            elif QUOTE in text:
                found = _row_encloses_cells(text, lines, width)
                if found is not None:
                    return found
                unclear = unclear or f"{path}, line {line}"
            line += len(lines)
    name, lines_name = path.with_suffix(".csv").name, path.with_suffix(".jsonl").name
    hint = (
        f"if they only enclose cells: rename the file to {name}; that tabs part its columns is found\n"
        f'  if they belong to the texts: pandas.read_csv("{path.name}", sep="\\t", quoting=3)'
        f'.to_json("{lines_name}", orient="records", lines=True)'
    )
    problem = "quotes around whole cells: no row tells whether they only enclose cells or belong to the texts"
    raise UserError(problem, place=unclear, hint=hint)


def _row_encloses_cells(text: str, lines: list[str], width: int) -> bool | None:
    """What a row tells that has a quote; None where it can be read both ways, or neither.

    Args:
        lines: Those which it has if quotes enclose cells.
    """
    if _ROW.fullmatch(text) is None:
        return False
    cells = _CELLS.findall(text)
    if_quoted = len(cells) == width
    if_plain = all(len(tsv_cells(each)) == width for each in lines if each.rstrip("\r\n"))
    if if_quoted != if_plain:
        return if_quoted
    # Who encloses a cell for what is in it doubles its quotes, which texts do not, or keeps a carriage return in it.
    inside = [cell[1:-1] for cell in cells if cell.startswith(QUOTE)]
    return True if if_quoted and any(QUOTE in text or "\r" in text for text in inside) else None


def _parse_quoted(path: Path, encoding: str) -> Iterator[Parsed]:
    header: list[str] | None = None
    with path.open(encoding=encoding, newline="\n") as file:
        line = 1
        for lines in _rows(file):
            text = without_end("".join(lines))
            if _ROW.fullmatch(text) is None:
                problem = f"broken quotes: {shorten(text)}, where quotes enclose other cells of the file"
                raise UserError(problem, place=f"{path}, line {line}", hint=QUOTING)
            cells = [_unquoted(cell) for cell in _CELLS.findall(text)]
            if header is None:
                header = check_header(path, cells)
            elif text:
                yield line, table_row(header, cells, TAB)
            line += len(lines)


def _rows(file: Iterator[str], most_lines: int | None = None) -> Iterator[list[str]]:
    """The lines of each row: as long as a quote is open, the next one belongs to it."""
    for first in file:
        lines, num_quotes = [first], first.count(QUOTE)
        while num_quotes % 2 and len(lines) != most_lines and (line := next(file, "")):
            lines.append(line)
            num_quotes += line.count(QUOTE)
        yield lines


def _unquoted(cell: str) -> str:
    return cell[1:-1].replace('""', QUOTE) if cell.startswith(QUOTE) else cell
