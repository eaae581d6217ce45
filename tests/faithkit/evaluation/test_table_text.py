"""Tables as markdown: text from data stays the text that it is."""

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from faithkit.evaluation.table_text import cells_of, escaped, markdown
from faithkit.evaluation.tables import figures_table, harmless


def table_of(*cells: str):
    table = figures_table("a title", "name", ["count"])
    for cell in cells:
        table.add_row(Text(cell), "1")
    table.caption = Text("first line\nsecond | line")
    return table


def test_a_table_is_written_with_its_title_and_caption():
    assert markdown(table_of("a", "b|c")).splitlines() == [
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
    assert cells_of(table_of("a")) == (["name", "count"], [["a", "1"]], [False, True])


@given(st.text())
def test_no_text_breaks_out_of_its_cell_or_becomes_markup(text):
    line = markdown(table_of(text)).splitlines()[4]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3
    assert not re.search(r"(?<!\\)(?:\\\\)*[<>`*\[\]]", line)
    assert re.sub(r"\\([\\`*_\[\]<>|#])", r"\1", escaped(text)) == harmless(text)
