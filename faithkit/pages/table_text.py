"""Tables of the terminal as text for files: markdown, HTML, and rows of plain cells."""

import html
from collections.abc import Callable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from faithkit.pages.page_tables import escape_terminal


def table_cells(table: Table) -> tuple[list[str], list[list[str]], list[bool]]:
    """Gives a table's head, its rows, and which columns are numbers (those aligned to the right)."""
    head = [_plain(column.header) for column in table.columns]
    rows = [[_plain(cell) for cell in row] for row in zip(*(column.cells for column in table.columns), strict=True)]
    return head, rows, [column.justify == "right" for column in table.columns]


def table_title(table: Table) -> str:
    return _plain(table.title)


def table_caption(table: Table) -> str:
    return "" if table.caption is None else str(table.caption)


def to_markdown(table: Table) -> str:
    """Writes a table in markdown: title, cells, and the caption behind."""
    return "".join(f"{line}\n" for line in _lines(table))


def _lines(table: Table) -> Iterator[str]:
    head, rows, numbers = table_cells(table)
    yield f"## {escape_markdown(table_title(table))}"
    yield ""
    yield f"| {' | '.join(map(escape_markdown, head))} |"
    yield f"|{'|'.join(' ---: ' if number else ' --- ' for number in numbers)}|"
    for row in rows:
        yield f"| {' | '.join(map(escape_markdown, row))} |"
    for line in table_caption(table).split("\n"):
        if line:
            yield ""
            yield escape_markdown(line)
    yield ""


def to_html(table: Table, kind_of: Callable[[Sequence[str]], str] = lambda row: "") -> str:
    """Writes a table's head and rows as HTML, without title and caption.

    Args:
        kind_of: Gives the class of a row by its cells; empty for none.
    """
    head, rows, numbers = table_cells(table)
    lines = ["<table>"]
    if table.show_header:
        lines += ["<thead><tr>", *(_cell("th", *one) for one in zip(head, numbers, strict=True)), "</tr></thead>"]
    lines.append("<tbody>\n")
    for row in rows:
        kind = f' class="{html.escape(name)}"' if (name := kind_of(row)) else ""
        first, *others = zip(row, numbers, strict=True)
        lines += [f"<tr{kind}>", _cell("th", *first, ' scope="row"'), *(_cell("td", *one) for one in others), "</tr>\n"]
    return "".join([*lines, "</tbody></table>"])


def table_section(table: Table, kind_of: Callable[[Sequence[str]], str] = lambda row: "") -> str:
    """Writes a table as HTML in a box that scrolls, with its caption below; the arguments are those of `to_html`."""
    caption = html.escape(table_caption(table))
    note = f'<p class="note">{caption}</p>\n' if caption else ""
    return f"<div {scroll_box_attributes(table_title(table))}>{to_html(table, kind_of)}</div>\n{note}"


def scroll_box_attributes(name: str) -> str:
    """Gives the attributes of a box that scrolls where its content is wider than the screen, by keys too."""
    return f'class="wide-box" tabindex="0" role="region" aria-label="{html.escape(escape_terminal(name))}"'


def _cell(tag: str, text: str, number: bool, more: str = "") -> str:
    kind = ' class="number"' if number else ""
    return f"<{tag}{kind}{more}>{html.escape(escape_terminal(text))}</{tag}>"


def escape_markdown(text: str) -> str:
    """Escapes what would be markup: text from data must stay the text that it is."""
    line = escape_terminal(text)
    for mark in "\\`*_[]<>|#":
        line = line.replace(mark, f"\\{mark}")
    return line


def _plain(value: object) -> str:
    return value.plain if isinstance(value, Text) else "" if value is None else str(value)
