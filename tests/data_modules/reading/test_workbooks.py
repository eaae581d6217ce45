"""Workbooks: read as a table of texts, or refused with what to type."""

import logging
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import Workbook
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

from data_modules.reading import formats
from data_modules.reading.rows import ReadReport, Row, read_rows
from faithkit.errors import UserError
from tests.data_modules.official.judgements import DIAHALU
from tests.data_modules.official_rows import make, read, write

COLUMNS = {"ID": "ID", "text": "Dialogue", "label": "Label", "index": "Hallucination Type", "domain": "Domain"}
COLUMNS |= {"explaination": "Explaination", "source": "Source", "Which LLM": "Which LLM"}
RELEASED = [list(COLUMNS.values()), *([row[name] for name in COLUMNS] for row in DIAHALU)]
TABLE = [["answer", "label"], ["It is deep.", 1]]


def save(path: Path, *sheets: Sequence[Sequence[Any]], merged: str = "") -> Path:
    book = Workbook()
    book.remove(book.worksheets[0])
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"Part {number}")
        for row in rows:
            sheet.append(row)
        if merged:
            sheet.merge_cells(merged)
    book.save(path)
    return path


def rows_of(path: Path, **options: Any) -> list[Row]:
    return list(read_rows(path, ReadReport(**options)))


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        rows_of(path)
    return str(caught.value)


def test_diahalus_workbook_gives_the_examples_of_its_json_lines(tmp_path: Path) -> None:
    lines, counts = read(make("diahalu", write(tmp_path / "lines" / "DiaHalu.jsonl", DIAHALU)))
    book = make("diahalu", save(tmp_path / "DiaHalu_V2.xlsx", [["notes on types"]], RELEASED))
    assert read(book) == (lines, counts)
    path = save(tmp_path / "DiaHalu_V1.xlsx", [[*row[:7], None] for row in RELEASED])  # all of ChatGPT
    examples, counts = read(make("diahalu", path, models="ChatGPT3.5"))
    assert {example.meta["model"] for example in examples} == {"ChatGPT3.5"} and counts["kept"] == 4
    with pytest.raises(UserError, match=r"no usable example .*dropped: model ChatGPT3.5 4"):
        read(make("diahalu", path, models="gpt4"))
    with pytest.raises(UserError, match=r"models is 'gpt5'(.|\n)*ChatGPT3.5, GPT4"):
        make("diahalu", path, models="gpt5")


@pytest.mark.parametrize("one", [1, 1.0, "1", " 1 "])
def test_a_label_is_the_same_as_a_number_or_a_text(tmp_path: Path, one: object) -> None:
    path = save(tmp_path / "DiaHalu.xlsx", [RELEASED[0], [2, RELEASED[1][1], one, *RELEASED[1][3:]]])
    (example,) = read(make("diahalu", path))[0]
    assert example.label == "hallucinated" and example.id == "2"


def test_empty_rows_are_skipped_and_lines_are_the_sheets(tmp_path: Path) -> None:
    table = [[], TABLE[0], ["", None], TABLE[1], [None, " "], *[[None, None]] * 40]
    found = rows_of(save(tmp_path / "t.xlsx", table))
    assert [(row.values, row.number, row.line) for row in found] == [({"answer": "It is deep.", "label": "1"}, 0, 4)]
    assert found[0].place.endswith("t.xlsx, row 4")


def test_the_sheet_with_the_most_columns_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "faithkit"):
        (row,) = rows_of(save(tmp_path / "t.xlsx", [["Notes"], ["of May"]], TABLE, TABLE[:1], []))
    assert row.values["label"] == "1"
    assert "reads sheet 'Part 1' of 'Part 0', 'Part 1', 'Part 2'" in caplog.text


def test_what_is_no_workbook_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, path = save(tmp_path / "whole.xlsx", TABLE * 50).read_bytes(), tmp_path / "t.xlsx"
    for size in (0, 3, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:size])
        assert "not a whole .xlsx workbook" in refusal(path) and "fetch it again" in refusal(path)
    path.write_bytes(bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600))
    assert "protected by a password" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "no workbook")
    assert "not a whole .xlsx workbook" in refusal(path)
    longer = [*TABLE, ["deep", 0, "and more"], ["x"]]
    for problem, sheets, merged in (
        ("the workbook has no rows", [[], []], ""),
        ("the file has no data rows", [TABLE[:1]], ""),
        ("the header names 'label' twice", [[["label", "label"], [1, 2]]], ""),
        ("the cells B2:B3 are merged", [[*TABLE, ["deep", 0]]], "B2:B3"),
        ("a formula has no stored result", [[*TABLE, ["deep", "=1+1"]]], ""),
        ("3 cells where the header has 2", [longer], ""),
    ):
        assert problem in refusal(save(path, *sheets, merged=merged))
    assert [row.values["label"] for row in rows_of(path, on_bad_row="skip")] == ["1", ""]
    monkeypatch.setattr(formats, "MAX_BYTES", 30_000)
    assert save(path, [["answer"], ["a" * 30_000]]).stat().st_size < 30_000
    assert re.search(r"unpacks to [\d,]+ bytes; the limit is 30,000", refusal(path))
    path.unlink()
    assert "the file does not exist" in refusal(path)


CELLS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40).filter(lambda text: text[:1] != "=")


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8))
def test_texts_come_back_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, cells: list) -> None:
    assert not any(ILLEGAL_CHARACTERS_RE.search(text) for row in cells for text in row)
    path = save(tmp_path_factory.getbasetemp() / "texts.xlsx", [["a", "b"], *cells, ["end", "end"]])
    wanted = [{"a": a, "b": b} for a, b in cells if a.strip() or b.strip()]
    assert [row.values for row in rows_of(path)][:-1] == wanted
