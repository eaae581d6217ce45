"""Tables as markdown: text from data stays the text that it is."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from faithkit.pages.page_tables import (
    escape_markdown,
    escape_terminal,
    new_number_table,
    render_text,
    table_cells,
    to_markdown,
)


def table_of(*cells: str):
    table = new_number_table("a title", "name", ["count"])
    for cell in cells:
        table.add_row(Text(cell), "1")
    table.caption = Text("first line\nsecond | line")
    return table


def test_a_table_is_written_with_its_title_and_caption():
    assert to_markdown(table_of("a", "b|c")).splitlines() == [
        "## a title",
        "",
        "| name | count |",
        "| --- | ---: |",
        "| a | 1 |",
        r"| b\|c | 1 |",
        "",
        "first line",
        "",
        r"second \| line",
        "",
    ]
    assert table_cells(table_of("a")) == (["name", "count"], [["a", "1"]], [False, True])


BASELINES = ("majority", "word overlap", "response length", "random", "counted features")


def table_of_types(min_width: int):
    table = new_number_table("", "type", ["n", "model", *BASELINES], min_width=min_width, no_wrap=["n"])
    table.add_row(Text("reasoning error"), "1,109", "50.1 [40.5, 60.5]", "50.2", "50.3", "50.4", "50.5", "50.6")
    table.add_row(Text("overreliance"), "1,109", "50.1 [40.5, 60.5]", "50.2", "50.3", "50.4", "50.5", "50.6")
    return table


@pytest.mark.parametrize("min_width", [12, 17])
def test_a_narrow_table_breaks_no_word_where_all_words_fit(min_width):
    found = render_text(table_of_types(min_width), width=82)
    assert set(" ".join(["reasoning error overreliance", *BASELINES]).split()) <= set(found.split())
    assert max(map(len, found.splitlines())) <= 82


@pytest.mark.parametrize("width", [40, 60, 79, 80])
def test_no_figure_is_left_out_however_narrow_the_terminal(width):
    found = render_text(table_of_types(17), width=width)
    assert max(map(len, found.splitlines())) <= width
    cells = "".join(line.rpartition("|")[2] for line in found.splitlines())
    assert cells.replace(" ", "").count("50.6") == 2


@given(st.text())
def test_no_text_breaks_out_of_its_cell_or_becomes_markup(text):
    line = to_markdown(table_of(text)).splitlines()[4]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3
    assert not re.search(r"(?<!\\)(?:\\\\)*[<>`*\[\]]", line)
    assert re.sub(r"\\([\\`*_\[\]<>|#])", r"\1", escape_markdown(text)) == escape_terminal(text)
