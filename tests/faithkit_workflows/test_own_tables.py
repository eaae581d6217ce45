"""Tables of any format come back whole with their verdicts, whatever their texts, and shares are told by any column."""

import csv
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.reading.rows import ReadReport
from data_modules.reading.table_files import read_table
from faithkit.errors import UserError
from faithkit.provenance.used_model import TestRows
from faithkit.records import Prediction, Span
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.metric import PROPORTION
from faithkit.statistics.spread import count_group_kinds, proportion_from_counts
from faithkit_workflows.tables import shares as counted
from faithkit_workflows.tables.shares import ShareCounter
from faithkit_workflows.tables.user_table import UserTable, open_user_table, write_scored
from tests.data_modules.examples import example
from tests.data_modules.official_rows import write

SPAN = Span(start=0, end=1, label="entity", score=0.5)


def judged(rows: UserTable) -> list[Prediction]:
    return [Prediction(id=each.id, label="hallucinated", score=0.75, spans=(SPAN,)) for each in rows.examples]


def round_trip(path: Path, **columns: str) -> list[dict[str, Any]]:
    """The rows of the table that scoring a table writes."""
    rows = open_user_table(str(path), columns, join=" ".join)
    output = path.with_name(f"out{path.suffix}")
    write_scored(output, rows, judged(rows))
    return [dict(row.values) for row in read_table(output, ReadReport())]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(st.lists(st.tuples(TEXT, TEXT, st.text(st.characters(exclude_categories=["Cs"]))), min_size=1, max_size=3))
def test_any_text_survives_in_every_format(texts: list[tuple[str, str, str]]) -> None:
    given_rows = [{"knowledge": k, "response": r, "note": n} for k, r, n in texts]
    with TemporaryDirectory() as folder:
        table = Path(folder) / "rows.csv"
        with table.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(given_rows[0]), quoting=csv.QUOTE_ALL)
            writer.writeheader()
            writer.writerows(given_rows)
        lines = write(Path(folder) / "rows.jsonl", given_rows)
        pq.write_table(pa.Table.from_pylist(given_rows), Path(folder) / "rows.parquet")
        for path in (table, lines, Path(folder) / "rows.parquet"):
            found = round_trip(path)
            assert [{name: row[name] for name in given_rows[0]} for row in found] == given_rows, path
            assert all(row["label"] == "hallucinated" and float(row["probability"]) == 0.75 for row in found)
            spans = [json.loads(s) if isinstance(s := row["spans"], str) else s for row in found]
            for [span], (knowledge, response, _) in zip(spans, texts, strict=True):
                assert span.pop("evidence") in knowledge and span.pop("reason")
                assert span.pop("relation") is span.pop("element") is None
                assert span == {"start": 0, "end": 1, "text": response[0], "label": "entity", "score": 0.5}


def test_a_table_keeps_its_separator_its_mark_and_its_formulas(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('context;answer;sum\nk;r;=1+1\n"a;b";"=HYPERLINK(""x"")";+1\n', encoding="utf-8-sig")
    assert [row["sum"] for row in round_trip(path)] == ["=1+1", "+1"]
    written = (tmp_path / "out.csv").read_bytes()
    assert written.startswith(b"\xef\xbb\xbfcontext;answer;sum;label;probability;spans\nk;r;=1+1;hallucinated;0.75;")
    assert b'\n"a;b";"=HYPERLINK(""x"")";+1;' in written


FORMULA = st.sampled_from(["", "'"]).flatmap(lambda mark: st.from_regex(rf"\A{mark}[=+@\t\r-].{{0,3}}\Z"))


@given(st.lists(FORMULA, min_size=1))
def test_formulas_are_escaped_when_asked_and_can_be_read_again(formulas: list[str]) -> None:
    with TemporaryDirectory() as name:
        out = Path(name) / "out.csv"
        path = write(Path(name) / "rows.jsonl", [{"context": "k", "answer": "r", "=x": one} for one in formulas])
        rows = open_user_table(str(path), {}, join=" ".join)
        write_scored(out, rows, judged(rows), escape_formulas=True)
        with out.open(newline="") as file:
            header, *found = csv.reader(file)
    assert header[:3] == ["context", "answer", "'=x"]
    assert [row[2] for row in found] == [f"'{one}" for one in formulas]
    assert {row[3] for row in found} == {"hallucinated"}


def test_parquet_keeps_its_types_and_a_saved_dataset_comes_back_as_parquet(tmp_path: Path) -> None:
    import datetime

    import datasets

    rows = [{"knowledge": ["k", "l"], "response": "r", "day": datetime.date(2026, 1, 2), "x": float("nan"), "n": 5}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (found,) = round_trip(tmp_path / "rows.parquet")
    assert found["knowledge"] == ["k", "l"] and found["day"] == rows[0]["day"] and found["n"] == 5
    own = open_user_table(str(tmp_path / "rows.parquet"), {}, join=" ".join)
    for suffix in (".jsonl", ".json", ".csv", ".tsv"):  # which know no dates and no NaN
        write_scored(tmp_path / f"out{suffix}", own, judged(own))
        (row,) = read_table(tmp_path / f"out{suffix}", ReadReport())
        assert row.values["day"] == "2026-01-02" and row.values["label"] == "hallucinated", suffix
    table = datasets.Dataset.from_list([{"context": "k", "answer": "r"}])
    datasets.DatasetDict(train=table).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(UserError, match=r"with the splits train(.|\n)*path=.*saved/train"):
        open_user_table(str(tmp_path / "saved"), {}, join=" ".join)
    saved = open_user_table(str(tmp_path / "saved" / "train"), {}, join=" ".join)
    write_scored(tmp_path / "saved.parquet", saved, judged(saved))
    assert pq.read_table(tmp_path / "saved.parquet").to_pylist()[0]["answer"] == "r"


def test_shares_by_several_columns_show_the_most_frequent_values(tmp_path: Path) -> None:
    lines = [{"context": "k", "answer": "r", "model": "ab"[n % 2], "topic": {"name": str(n % 25)}} for n in range(60)]
    path = write(tmp_path / "rows.jsonl", lines)
    rows = open_user_table(str(path), {}, join=" ".join, by=["model", "topic.name"])
    shares = ShareCounter(["model", "topic.name"])
    write_scored(tmp_path / "out.jsonl", rows, judged(rows), shares.add)
    table = shares.table(shares.shares(num_resamples=20), grouped_by="knowledge")
    names = [str(name) for name in table.columns[0].cells]
    assert names[:4] == ["all", "model: a", "model: b", "topic.name: 0"]
    assert names[-1] == "topic.name: the other 5 values" and len(names) == 1 + 2 + counted.MAX_SHOWN_VALUES + 1


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_cells_with_quotes_tabs_and_line_ends_come_back(suffix: str, tmp_path: Path) -> None:
    texts = ['"Whole."', 'He said "no".', "a\tb", "a\nb", "a\rb", '"', ""]
    lines = [{"knowledge": text or "K", "response": "R", "note": text} for text in texts]
    rows = open_user_table(str(write(tmp_path / "rows.jsonl", lines)), {}, join=" ".join)
    out = tmp_path / f"out{suffix}"
    write_scored(out, rows, judged(rows), lambda *_: None)
    assert [row.values["note"] for row in read_table(out, ReadReport())] == texts


@pytest.mark.parametrize(("num_groups", "every"), [(2, 2), (20, 20), (20, 7), (600, 600), (700, 4)])
def test_counts_of_groups_give_the_interval_that_the_rows_have(num_groups: int, every: int) -> None:
    index = np.repeat(np.arange(num_groups), np.arange(num_groups) % 3 + 1)
    called, groups = (index % every == 1).astype(np.int8), Groups(index, num_groups)
    for verdicts in (called, called * 0, called * 0 + 1):
        statistic = mean_statistic(groups, {"share": verdicts})
        expected = bootstrap(groups, statistic, kinds=PROPORTION, num_resamples=4000).metrics["share"]
        counted = proportion_from_counts(count_group_kinds(index, verdicts), num_resamples=4000)
        assert counted and counted.value == expected.value and counted.n == len(index)
        bounds = pytest.approx((expected.low, expected.high), abs=1e-9 if num_groups <= 500 else 2e-3)
        assert (counted.low, counted.high) == bounds


def test_a_share_of_one_group_may_be_nearly_anything() -> None:
    share = proportion_from_counts(count_group_kinds(np.zeros(3), np.array([1, 0, 0])), num_resamples=100)
    assert share is not None and share.value == pytest.approx(1 / 3)
    assert (share.low, share.high) == pytest.approx((0.025 / 3, 0.975 + 0.025 / 3))


def test_the_fingerprint_of_rows_is_the_same_in_any_order() -> None:
    examples = [example(id=f"x{number}", knowledge="\u00e9\u2028" * number) for number in range(11)]
    whole = TestRows.of("own", examples)
    assert TestRows.of("own", iter(reversed(examples))) == whole
    assert TestRows.of("own", examples[1:]).rows != whole.rows and len(whole.rows) == len(whole.gold) == 32
