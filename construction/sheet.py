"""Writes and reads tables that people fill in with a spreadsheet: CSV in UTF-8, as spreadsheets save it.

The header decides whether commas, semicolons or tabs separate cells. A cell that a spreadsheet would take for a formula
is written with an apostrophe before it, which reading removes.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from data_modules.reading import formats  # noqa: F401 - it raises the limit on a cell's length
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import atomic_file, disk_errors

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a formula begins with


def write_sheet(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> int:
    """Replaces a table in one step, and counts its rows."""
    count = 0
    with atomic_file(path) as file:
        with disk_errors(path):
            file.write(_line(columns).encode("utf-8-sig"))  # spreadsheets recognize UTF-8 by its mark
        for row in rows:
            with disk_errors(path):
                cells = ("" if (value := row.get(name)) is None else escape_formula(str(value)) for name in columns)
                file.write(_line(cells).encode(errors="backslashreplace"))
            count += 1
    return count


def read_sheet(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the place and the cells of each row; skips other columns and empty rows.

    Raises:
        UserError: A column is missing, or the file is not valid CSV.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")  # line ends within cells stay as they are
    except UnicodeDecodeError as error:
        raise UserError("not UTF-8 text", place=str(path), hint="save it as CSV UTF-8") from error
    header = text.split("\n", 1)[0]
    delimiter = max((",", ";", "\t"), key=header.count)
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
                raise UserError(problem, place=place, hint="quote cells that contain the separator")
            found = dict(zip(names, cells, strict=True))
            yield place, {name: unescape_formula(found[name]) for name in columns}
    except csv.Error as error:
        raise UserError(
            f"broken CSV: {error}", place=f"{path}, line {reader.line_num}", hint="save it again"
        ) from error


def escape_formula(text: str) -> str:
    """Writes a cell that spreadsheets do not take for a formula."""
    return f"'{text}" if text.lstrip("'").startswith(FORMULA) else text


def unescape_formula(cell: str) -> str:
    """Reads a cell that `escape_formula` wrote.

    >>> unescape_formula(escape_formula("-5 degrees"))
    '-5 degrees'
    """
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(FORMULA) else cell


def normalize_spaces(text: str) -> str:
    """Replaces all white space by single spaces, since editors change it."""
    return " ".join(text.split())


def _line(cells: Iterable[str]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue()
