"""Tab-separated tables: quotes enclose cells or are ordinary characters, and an undecidable file is refused."""

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from data_modules.datasets.pairs import read_pairs
from data_modules.reading.rows import ReadReport
from data_modules.reading.table_files import read_table
from faithkit.errors import UserError
from faithkit_workflows.tables.user_table import open_user_table

HEADER = ["context", "answer", "verdict"]
UNDECIDED = "no row shows whether they only enclose cells"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text('"a\t\r\n ,', max_size=8)
CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n"), max_size=8)


def lines_of(path: Path) -> list[tuple[int, list[str]]]:
    return [(row.line, list(row.values.values())) for row in read_table(path, ReadReport())]


def put(folder: Path, *lines: str, header: str = "\t".join(HEADER), name: str = "rows.tsv") -> Path:
    (folder / name).write_text("".join(f"{line}\n" for line in (header, *lines)), newline="")
    return folder / name


def as_written(path: Path, rows: list[list[str]], quoting: int = csv.QUOTE_MINIMAL) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", quoting=quoting).writerows([HEADER, *rows])  # type: ignore[arg-type]
    return path


@given(rows=st.lists(st.lists(TEXT, min_size=3, max_size=3), min_size=1, max_size=4), whole=st.booleans())
def test_what_csv_writes_comes_back_or_is_refused(rows: list[list[str]], whole: bool) -> None:
    with TemporaryDirectory() as folder:
        path = as_written(Path(folder) / "rows.tsv", rows, csv.QUOTE_ALL if whole else csv.QUOTE_MINIMAL)
        try:
            assert [cells for _, cells in lines_of(path)] == rows
        except UserError as error:
            assert UNDECIDED in error.problem and not whole


@given(rows=st.lists(st.lists(CELL | st.text('"a ', max_size=4), min_size=3, max_size=3), min_size=1, max_size=4))
def test_plain_cells_come_back_or_are_refused(rows: list[list[str]]) -> None:
    assume(not any('""' in cell[1:-1] for row in rows for cell in row))
    with TemporaryDirectory() as folder:
        path = put(Path(folder), *("\t".join(row) for row in rows))
        try:
            assert [cells for _, cells in lines_of(path)] == rows
        except UserError as error:
            assert UNDECIDED in error.problem
            assert any(cell.startswith('"') for row in rows for cell in row)


@pytest.mark.parametrize(
    "decisive",
    ['"Go" he said\tb\tc', 'say "go"\tb\tc', '"Go\tb\tc', 'a 5" pipe\tb\tc', '[{"start": 0}]\tb\tc', '"a"\tb" \t"c"'],
)
def test_a_row_that_no_writer_of_quoted_cells_makes_has_ordinary_quotes_for_the_whole_file(
    decisive: str, tmp_path: Path
) -> None:
    rows = ["x\ty\tz", '"Hello."\tb\tc', *["x\ty\tz"] * 30, decisive, '"a ""b"""\tb\tc']
    assert [cells for _, cells in lines_of(put(tmp_path, *rows))] == [row.split("\t") for row in rows]


@pytest.mark.parametrize("decisive", ['"a ""b"""\tb\tc', '"a\nb"\tb\tc', '"a\tb"\tb\tc', '"a\rb"\tb\tc', '""""\tb\tc'])
def test_a_row_with_cells_that_only_csv_writers_quote_decides(decisive: str, tmp_path: Path) -> None:
    found = lines_of(put(tmp_path, "x\ty\tz", '"Hello."\tb\tc', *["x\ty\tz"] * 30, decisive))
    (meant,) = csv.reader(io.StringIO(decisive, newline=""), delimiter="\t")
    assert found[:2] == [(2, ["x", "y", "z"]), (3, ["Hello.", "b", "c"])] and found[-1] == (34, meant)


@pytest.mark.parametrize("name", ["rows.tsv", "rows.txt"])
def test_an_undecidable_file_is_refused_with_both_remedies(name: str, tmp_path: Path) -> None:
    path = put(tmp_path, "x\ty\tfaithful", '"Hello, you."\ty\tfaithful', "x\ty\tfaithful", name=name)
    told = f"{UNDECIDED}(.|\n)*{name}, line 3(.|\n)*rows.csv(.|\n)*rows.jsonl"
    for read in (read_pairs, lambda path: open_user_table(str(path), {}, join=" ".join)):
        with pytest.raises(UserError, match=told) as caught:
            read(path)
        assert len(str(caught.value).splitlines()) == 4
    table = path.rename(tmp_path / "rows.csv")  # as the hint says
    assert [example.knowledge for example in read_pairs(table)] == ["x", "Hello, you.", "x"]


def test_a_header_in_quotes_decides_and_a_broken_quote_is_reported_with_its_line(tmp_path: Path) -> None:
    header = '"context"\t"answer"\t"verdict"'
    assert lines_of(put(tmp_path, '"Hello."\t"b"\t"c"', "", header=header)) == [(2, ["Hello.", "b", "c"])]
    for broken in ('"Go" he said\tb\tc', '"open\tb\tc'):
        with pytest.raises(UserError, match=r"broken TSV(.|\n)*rows.tsv, line 3(.|\n)*twice"):
            lines_of(put(tmp_path, '"Hello."\tb\tc', broken, header=header))
    report = ReadReport("skip")
    rows = list(read_table(put(tmp_path, '"a"\tb', "x\ty\tz", header=header), report))
    assert len(rows) == report.counts["rejected: bad row"] == 1
    with pytest.raises(UserError, match="names 'a' twice"):
        lines_of(put(tmp_path, "x\ty", header='"a"\ta'))


def test_other_encodings_are_read_or_named(tmp_path: Path) -> None:
    path = as_written(tmp_path / "rows.tsv", [['Er sagte "Süß".', "b", "faithful"]])
    path.write_bytes(path.read_text().encode("utf-16"))
    assert [cells for _, cells in lines_of(path)] == [['Er sagte "Süß".', "b", "faithful"]]
    path.write_bytes('context\tanswer\tverdict\n"a ""ü"""\tb\tc\n'.encode("cp1252"))
    with pytest.raises(UserError, match="encoding=cp1252"):
        lines_of(path)
