"""Tables that people fill in with a spreadsheet or an editor: CSV in UTF-8, read back as the spreadsheets save it.

Commas, semicolons and tabs part cells, by the header. A cell that a spreadsheet would take for a formula gets an
apostrophe before it, which is taken off again when it is read.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from data_modules.reading import formats  # noqa: F401 - it raises the limit on a cell's length
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import atomic_file, disk_errors

BOM = "\ufeff"  # by which spreadsheets know UTF-8
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a formula begins with
DELIMITERS = (",", ";", "\t")


def write_sheet(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> int:
    """Replaces a table in one step, and counts its rows."""
    count = 0
    with atomic_file(path) as file:
        with disk_errors(path):
            file.write((BOM + _line(columns)).encode())
        for row in rows:
            with disk_errors(path):
                file.write(_line([guarded(_cell(row.get(name))) for name in columns]).encode(errors="backslashreplace"))
            count += 1
    return count


def read_sheet(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the place and the cells of each row; other columns, and empty rows, are passed over.

    Raises:
        UserError: A column is missing, or the file is no such table.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")  # line ends within cells stay as they are
    except UnicodeDecodeError as error:
        raise UserError("not UTF-8 text", place=str(path), hint="save it as CSV UTF-8") from error
    header = text.split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = next(reader, [])
        if missing := [name for name in columns if name not in names]:
            problem = f"there is no column {missing[0]!r}: the table has {shorten(', '.join(names) or 'nothing')}"
            raise UserError(problem, place=str(path), hint="leave the header as it was written")
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            place = f"{path}, line {reader.line_num}"
            if len(cells) != len(names):
                problem = f"{len(cells)} cells where the header has {len(names)}"
                raise UserError(problem, place=place, hint="quote cells that hold the character between cells")
            found = dict(zip(names, cells, strict=True))
            yield place, {name: unguarded(found[name]) for name in columns}
    except csv.Error as error:
        raise UserError(f"broken CSV: {error}", place=f"{path}, line {reader.line_num}", hint="save it anew") from error


def guarded(text: str) -> str:
    """Makes a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.lstrip("'").startswith(FORMULA) else text


def unguarded(cell: str) -> str:
    """Gives the text of a cell.

    >>> unguarded(guarded("-5 degrees"))
    '-5 degrees'
    """
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(FORMULA) else cell


def plain(text: str) -> str:
    """Makes all white space single spaces: what editors change without being asked."""
    return " ".join(text.split())


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _line(cells: Sequence[str]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue()
