"""File formats: what was written is what is read, and what is broken is reported with its place."""

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_modules.reading.rows import ReadReport, read_rows
from faithkit.errors import UserError

# Any text that UTF-8 can hold; the samples make sure of the characters that line readers trip over.
TEXT = st.text(max_size=30) | st.sampled_from(
    ['"', '""', "a\r\nb", "\u2028", "\x85", "\x00", "\x1c\x0b", "'", "\\", "\ufeff"]
)
LONE = st.text(alphabet=st.characters(), max_size=10)  # with half surrogate pairs, which JSON escapes can hold
CELL = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), max_size=20)
RUNS = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def values(path: Path, **options: str) -> list[dict]:
    return [dict(row.values) for row in read_rows(path, ReadReport(**options))]


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@RUNS
@given(st.lists(st.dictionaries(LONE, LONE | st.integers() | st.none(), max_size=3), min_size=1, max_size=5))
def test_json_lists_and_lines_give_back_what_was_written(tmp_path: Path, rows: list[dict]) -> None:
    text = json.dumps(rows, indent=2)
    assert values(put(tmp_path / "a.json", text)) == rows
    assert values(put(tmp_path / "a.jsonl", text)) == rows  # DNLI names a list so
    lines = "\r\n".join(json.dumps(row) for row in rows)
    assert values(put(tmp_path / "b.jsonl", lines)) == rows
    assert values(put(tmp_path / "b.json", f"\ufeff{lines}\n\n")) == rows


@RUNS
@given(st.lists(TEXT, min_size=1, max_size=5))
def test_unescaped_json_lines_are_cut_at_line_feeds_alone(tmp_path: Path, texts: list[str]) -> None:
    lines = "\n".join(json.dumps({"t": text}, ensure_ascii=False) for text in texts)
    assert [row["t"] for row in values(put(tmp_path / "a.jsonl", lines))] == texts


@RUNS
@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5), st.sampled_from(["\n", "\r\n"]))
def test_tsv_gives_back_what_was_written(tmp_path: Path, rows: list[tuple[str, str]], end: str) -> None:
    text = end.join(["one\ttwo", *("\t".join(row) for row in rows)])
    assert [tuple(row.values()) for row in values(put(tmp_path / "a.tsv", text))] == rows


@RUNS
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
def test_csv_gives_back_what_was_written(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows([("one", "two"), *rows])
    assert [tuple(row.values()) for row in values(put(tmp_path / "a.csv", buffer.getvalue()))] == rows


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.jsonl", '{"x": 1}\n{"x":\n{"x": 3}\n'), ("a.tsv", "x\n1\n2\t2\n3\n"), ("a.csv", "x\n1\n2,2\n3\n")],
)
def test_a_rejected_row_keeps_its_number(tmp_path: Path, name: str, content: str) -> None:
    report = ReadReport("skip")
    rows = list(read_rows(put(tmp_path / name, content), report))
    assert [row.number for row in rows] == [0, 2]
    assert report.counts == {"rejected: bad row": 1}
    with pytest.raises(UserError, match=rf"{name}, line {report.rejects[0]['line']}"):
        list(read_rows(tmp_path / name, ReadReport()))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "", "no data rows"),
        ("a.tsv", "x\ty\n", "no data rows"),
        ("a.csv", "", "no data rows"),
        ("a.json", '[{"x": 1},\n{"x": 2', "cut short\n  at: .*line 2"),
        ("a.json", '[{"x": 1},\n{"x" 2}]', "broken JSON at column 6.*\n  at: .*line 2"),
        ("a.json", '[{"x": 1}\n{"x": 2}]', "no comma"),
        ("a.json", '[{"x": 1},]', "broken JSON"),
        ("a.json", '[{"x": 1}]\n[]', "text after the end"),
        ("a.json", '{\n "x": 1\n}\n{\n "x": 2\n}', "begins as one JSON object.*\n  at: .*line 4"),
        ("a.json", "hello", "broken JSON"),
        ("a.jsonl", '{"x": 1}\n3\n', "must be a JSON object, got 3\n  at: .*line 2"),
        ("a.jsonl", '{"x": ' + "9" * 5000 + "}", "broken JSON"),
        ("a.json", '[{"x": ' + "[" * 100_000, "broken JSON|cut short"),
        ("a.csv", 'x,y\n1,"2\n', "broken CSV.*\n  at: .*line 2"),
        ("a.tsv", "x\tx\n1\t2\n", "names 'x' twice"),
        ("a.jsonl", b'{"x": 1}\n{"x": "\xff"}\n', "byte 0xff at position 8 of the line\n  at: .*line 2"),
        ("a.parquet", "x", "kind '.parquet'"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        list(read_rows(put(tmp_path / name, content), ReadReport()))
    assert len(str(caught.value).splitlines()) <= 5


def test_half_surrogate_pairs_are_read_but_are_no_text(tmp_path: Path) -> None:
    row = next(read_rows(put(tmp_path / "a.jsonl", r'{"x": "lake \ud83d", "y": "\ud83d\ude00"}'), ReadReport()))
    assert row.text("y") == "😀"
    with pytest.raises(ValueError, match="half a surrogate pair at 5"):
        row.text("x")
