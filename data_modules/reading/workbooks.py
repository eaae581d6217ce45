"""Reads a sheet of an .xlsx workbook as a table of texts; formulas and macros are not run.

A workbook is a ZIP archive of XML files. Its cells are read as a CSV file would hold them, so that a label is the same
whether it was typed as 1, 1.0 or text. Of several sheets the one with the most columns is read, the first of equal
ones. A file that would give other texts than a reader sees is refused: merged cells, and formulas without results.
"""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

from data_modules.reading.formats import Broken, Parsed, check_header
from faithkit.errors import UserError, shorten
from faithkit.packages import install_hint

XLSX = ".xlsx"
MAX_BYTES = 1 << 30  # of all files in the archive, unpacked: a small archive can claim any size
BLOCK, OVERLAP = 1 << 20, 1 << 10
ENCRYPTED = bytes.fromhex("d0cf11e0a1b11ae1")  # also begins workbooks from before 2007
# In a sheet's XML: a merged range, or a formula that the program which wrote it did not compute.
_UNREADABLE = re.compile(rb'<(?:\w+:)?mergeCell\s[^>]*?ref="([^"]+)"|</(?:\w+:)?f>\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>')
CSV_HINT = "save the sheet as CSV, and give that file"

log = logging.getLogger("faithkit")


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
                yield number, _named(header, cells)
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
        texts = [_text(cell) for cell in cells]
        if any(text.strip() for text in texts):
            yield number, texts


def _text(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)  # spreadsheets store 1 and 1.0 alike
    return "" if cell is None else str(cell)


def _named(header: list[str], cells: list[str]) -> dict[str, str] | Broken:
    if any(cell.strip() for cell in cells[len(header) :]):
        return Broken(f"{len(cells)} cells where the header has {len(header)}", cells)
    return dict(zip(header, cells + [""] * (len(header) - len(cells)), strict=False))
