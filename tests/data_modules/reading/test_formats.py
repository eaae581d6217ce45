"""File formats: what was written is what is read; what is broken, or of which quotes mean two things, is reported."""

import csv
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from data_modules.datasets.pairs import read_pairs
from data_modules.reading.rows import ReadReport, read_rows
from data_modules.reading.table_files import read_table
from faithkit.errors import UserError
from faithkit_workflows.tables.user_table import open_user_table

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


HEADER = ["context", "answer", "verdict"]
UNDECIDED = "no row shows whether they only enclose cells"
ANY_CELL = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text('"a\t\r\n ,', max_size=8)
PLAIN_CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n"), max_size=8)


def lines_of(path: Path) -> list[tuple[int, list[str]]]:
    return [(row.line, list(row.values.values())) for row in read_table(path, ReadReport())]


def put_lines(folder: Path, *lines: str, header: str = "\t".join(HEADER), name: str = "rows.tsv") -> Path:
    (folder / name).write_text("".join(f"{line}\n" for line in (header, *lines)), newline="")
    return folder / name


def as_written(path: Path, rows: list[list[str]], quoting: int = csv.QUOTE_MINIMAL) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", quoting=quoting).writerows([HEADER, *rows])  # type: ignore[arg-type]
    return path


@given(rows=st.lists(st.lists(ANY_CELL, min_size=3, max_size=3), min_size=1, max_size=4), whole=st.booleans())
def test_what_csv_writes_comes_back_or_is_refused(rows: list[list[str]], whole: bool) -> None:
    with TemporaryDirectory() as folder:
        path = as_written(Path(folder) / "rows.tsv", rows, csv.QUOTE_ALL if whole else csv.QUOTE_MINIMAL)
        try:
            assert [cells for _, cells in lines_of(path)] == rows
        except UserError as error:
            assert UNDECIDED in error.problem and not whole


@given(rows=st.lists(st.lists(PLAIN_CELL | st.text('"a ', max_size=4), min_size=3, max_size=3), min_size=1, max_size=4))
def test_plain_cells_come_back_or_are_refused(rows: list[list[str]]) -> None:
    assume(not any('""' in cell[1:-1] for row in rows for cell in row))
    with TemporaryDirectory() as folder:
        path = put_lines(Path(folder), *("\t".join(row) for row in rows))
        try:
            assert [cells for _, cells in lines_of(path)] == rows
        except UserError as error:
            assert UNDECIDED in error.problem
            assert any(cell.startswith('"') for row in rows for cell in row)


@pytest.mark.parametrize(
    "decisive",
    ['"Go" he said\tb\tc', 'say "go"\tb\tc', '"Go\tb\tc', 'a 5" pipe\tb\tc', '[{"start": 0}]\tb\tc', '"a"\tb" \t"c"'],
)
def test_a_row_that_no_writer_of_quoted_cells_makes_has_ordinary_quotes_in_all(decisive: str, tmp_path: Path) -> None:
    rows = ["x\ty\tz", '"Hello."\tb\tc', *["x\ty\tz"] * 30, decisive, '"a ""b"""\tb\tc']
    assert [cells for _, cells in lines_of(put_lines(tmp_path, *rows))] == [row.split("\t") for row in rows]


@pytest.mark.parametrize("decisive", ['"a ""b"""\tb\tc', '"a\nb"\tb\tc', '"a\tb"\tb\tc', '"a\rb"\tb\tc', '""""\tb\tc'])
def test_a_row_with_cells_that_only_csv_writers_quote_decides(decisive: str, tmp_path: Path) -> None:
    found = lines_of(put_lines(tmp_path, "x\ty\tz", '"Hello."\tb\tc', *["x\ty\tz"] * 30, decisive))
    (meant,) = csv.reader(io.StringIO(decisive, newline=""), delimiter="\t")
    assert found[:2] == [(2, ["x", "y", "z"]), (3, ["Hello.", "b", "c"])] and found[-1] == (34, meant)


@pytest.mark.parametrize("name", ["rows.tsv", "rows.txt"])
def test_an_undecidable_file_is_refused_with_both_remedies(name: str, tmp_path: Path) -> None:
    path = put_lines(tmp_path, "x\ty\tfaithful", '"Hello, you."\ty\tfaithful', "x\ty\tfaithful", name=name)
    told = f"{UNDECIDED}(.|\n)*{name}, line 3(.|\n)*rows.csv(.|\n)*rows.jsonl"
    for read in (read_pairs, lambda path: open_user_table(str(path), {}, join=" ".join)):
        with pytest.raises(UserError, match=told) as caught:
            read(path)
        assert len(str(caught.value).splitlines()) == 4
    table = path.rename(tmp_path / "rows.csv")  # as the hint says
    assert [example.knowledge for example in read_pairs(table)] == ["x", "Hello, you.", "x"]


def test_a_header_in_quotes_decides_and_a_broken_quote_is_reported_with_its_line(tmp_path: Path) -> None:
    header = '"context"\t"answer"\t"verdict"'
    assert lines_of(put_lines(tmp_path, '"Hello."\t"b"\t"c"', "", header=header)) == [(2, ["Hello.", "b", "c"])]
    for broken in ('"Go" he said\tb\tc', '"open\tb\tc'):
        with pytest.raises(UserError, match=r"broken TSV(.|\n)*rows.tsv, line 3(.|\n)*twice"):
            lines_of(put_lines(tmp_path, '"Hello."\tb\tc', broken, header=header))
    report = ReadReport("skip")
    rows = list(read_table(put_lines(tmp_path, '"a"\tb', "x\ty\tz", header=header), report))
    assert len(rows) == report.counts["rejected: bad row"] == 1
    with pytest.raises(UserError, match="names 'a' twice"):
        lines_of(put_lines(tmp_path, "x\ty", header='"a"\ta'))


def test_other_encodings_are_read_or_named(tmp_path: Path) -> None:
    path = as_written(tmp_path / "rows.tsv", [['Er sagte "Süß".', "b", "faithful"]])
    path.write_bytes(path.read_text().encode("utf-16"))
    assert [cells for _, cells in lines_of(path)] == [['Er sagte "Süß".', "b", "faithful"]]
    path.write_bytes('context\tanswer\tverdict\n"a ""ü"""\tb\tc\n'.encode("cp1252"))
    with pytest.raises(UserError, match="encoding=cp1252"):
        lines_of(path)
