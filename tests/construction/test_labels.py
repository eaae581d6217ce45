"""Tables that people fill in: any text comes back, and what spreadsheets do to a table is understood."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from construction.labels import escape_formula, read_sheet, write_sheet
from faithkit.errors import UserError

PLAIN = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
TEXT = PLAIN | st.tuples(st.sampled_from(["=", "'=", "''-", "@", "'"]), PLAIN).map("".join)


@given(TEXT)
def test_a_cell_is_never_a_formula(text: str) -> None:
    assert not escape_formula(text).startswith(("=", "+", "-", "@"))


@given(rows=st.lists(st.tuples(TEXT.filter(str.strip), TEXT), max_size=4))
def test_a_table_gives_any_text_back(rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "table.csv"
    assert write_sheet(path, ("a", "b"), ({"a": a, "b": b} for a, b in rows)) == len(rows)
    assert [(cells["a"], cells["b"]) for _, cells in read_sheet(path, ("a", "b"))] == rows


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tables_are_read_as_spreadsheets_save_them(delimiter: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes("\ufeffa;more;b\r\n1;2;'-3\r\n;;\r\n".replace(";", delimiter).encode())
    assert [cells for _, cells in read_sheet(path, ("a", "b"))] == [{"a": "1", "b": "-3"}]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"x,b\n1,2\n", "there is no column 'a'"),
        (b"a,b\n1,2,3\n", "3 cells where the header has 2"),
        (b"a,b\n\xff,2\n", "not UTF-8"),
        (b'a,b\n"1"x,2\n', "broken CSV"),
        (b"", "there is no column 'a'"),
    ],
)
def test_a_broken_table_is_explained(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=problem):
        list(read_sheet(path, ("a", "b")))
