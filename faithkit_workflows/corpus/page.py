"""One HTML page of a corpus: its tables and plots in one file that needs neither network nor script."""

import base64
import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.table import Table

from faithkit.files.atomic import atomic_file, disk_errors
from faithkit.pages.page_parts import fill_page
from faithkit.pages.plotting import DPI
from faithkit.pages.table_text import scroll_box_attributes, table_caption, table_title, to_html
from faithkit.pages.tables import escape_terminal
from faithkit_workflows.corpus.dialogue_tables import PAPER
from faithkit_workflows.corpus.stats import ALL

SCREEN_DPI = 100
# By the plot's name: its title in the page, and what it shows to those who cannot see it.
PLOTS: Mapping[str, tuple[str, str]] = {
    "rates": ("Rates by part", "Hallucinated share of each part with its interval; the table by part has the numbers."),
    "types": ("Types", "Share of each type of hallucination by part; the table of types has the numbers."),
    "positions": ("Positions", "Heat map of where in the responses hallucinated spans lie, a strip for each part."),
    "lengths": ("Length and hallucination", "Hallucination against the length of context and response, by part."),
    "models": ("Generators", "Hallucinated spans per hundred words by generator and task; see the table by generator."),
    "topics": ("Topics", "Bars of how many responses each topic has; the table by topic has the numbers."),
    "classes": ("BEGIN and VRM", "Shares of BEGIN's classes by system, and heat map of the speech acts in each class."),
    "copying": ("Copying", "How many responses have which coverage and density with their knowledge."),
}


def write_corpus_page(
    path: str | Path, tables: Sequence[Table], plots: Sequence[Path], *, title: str, summary: Sequence[str]
) -> None:
    """Writes the page, replacing the file in one step.

    Args:
        summary: Sentences for its head.
    """
    sections = [*_tables(tables, title), *_figures(plots)]
    links = "".join(f'<li><a href="#{name}">{html.escape(head)}</a></li>' for name, head, _ in sections)
    start, end = fill_page(
        "corpus.html",
        title=title,
        styles=("style.css", "sections.css"),
        summary="".join(f'<p class="summary">{html.escape(escape_terminal(line))}</p>' for line in summary),
        contents=links,
    )
    with atomic_file(path) as file, disk_errors(path):
        file.write(start.encode())
        for name, head, body in sections:
            file.write(f'<section id="{name}"><h2>{html.escape(head)}</h2>\n{body}</section>\n'.encode())
        file.write(end.encode())


def _tables(tables: Sequence[Table], title: str) -> Iterator[tuple[str, str, str]]:
    for place, table in enumerate(tables):
        head = escape_terminal(table_title(table).removeprefix(f"{title}: "))
        shown = head[:1].upper() + head[1:]
        notes = html.escape(table_caption(table))
        note = f'<p class="note">{notes}</p>\n' if notes else ""
        yield f"table-{place}", shown, f"<div {scroll_box_attributes(shown)}>{to_html(table, _kind)}</div>\n{note}"


def _kind(row: Sequence[str]) -> str:
    return "paper" if PAPER in row[:2] else "all" if row[0] == ALL else ""


def _figures(plots: Sequence[Path]) -> Iterator[tuple[str, str, str]]:
    for path in plots:
        head, told = PLOTS[path.stem]
        image = path.read_bytes()
        width = round(int.from_bytes(image[16:20], "big") * SCREEN_DPI / DPI)  # of the PNG's header
        data = base64.b64encode(image).decode()
        picture = f'<img width="{width}" alt="{html.escape(told)}" src="data:image/png;base64,{data}">'
        yield f"plot-{path.stem}", head, f"<figure><div {scroll_box_attributes(head)}>{picture}</div></figure>\n"
