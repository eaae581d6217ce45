"""`benchmark.by=[column]`: how a model does on each value of one's own columns, on the terminal and as filters."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import f1_score

from faithkit.errors import UserError
from faithkit.files.jsonl import write_jsonl
from tests.running import evaluate_here, metrics_of

HALLUCINATED, FAITHFUL = "hallucinated", "faithful"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A table of 60 rows in three languages, and predictions that err on every fifth row."""
    rows, said = [], []
    for n in range(60):
        label = HALLUCINATED if n % 3 == 0 else FAITHFUL
        texts = {"knowledge": f"Source {n // 2} says so.", "response": f"Answer {n}.", "label": label}
        own = {"language": ("de", "fr/CH", "")[n % 7 % 3], "customer": f"c{n}" if n < 40 else "many"}
        named_as_a_filter = {"outcome": "<b>paid</b>" if n % 4 else "open"}
        rows.append({"id": str(n), **texts, **own, "app": {"version": n % 2}, **named_as_a_filter})
        other = FAITHFUL if label == HALLUCINATED else HALLUCINATED
        said.append({"id": str(n), "label": label if n % 5 else other, "score": 0.5})
    write_jsonl(tmp_path / "rows.jsonl", rows)
    write_jsonl(tmp_path / "said.jsonl", said)
    return tmp_path / "rows.jsonl", tmp_path / "said.jsonl"


def evaluate(files: tuple[Path, Path], run: Path, by: str) -> dict[str, Any]:
    rows, said = files
    given = [f"benchmark.path={rows}", f"predictions={said}", f"run_dir={run}", f"benchmark.by={by}"]
    evaluate_here("benchmark=pairs", *given)
    return metrics_of(run, "test/pairs/by/")


def test_each_value_has_the_metrics_of_its_own_rows(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = evaluate(files, tmp_path / "run", "[language,app.version]")
    rows, said = ([json.loads(line) for line in path.read_text().splitlines()] for path in files)
    for value, shown in {"de": "de", "fr/CH": "fr/CH", "": "(empty)"}.items():
        part = [n for n, row in enumerate(rows) if row["language"] == value]
        expected = f1_score([rows[n]["label"] for n in part], [said[n]["label"] for n in part], average="macro")
        one = found[f"language/{shown}/macro_f1"]
        assert one["value"] == pytest.approx(expected) and one["low"] < one["value"] < one["high"]
        assert one["n"] == len(part)
        called = sum(said[n]["label"] == HALLUCINATED for n in part) / len(part)
        assert found[f"language/{shown}/predicted_rate"]["value"] == pytest.approx(called)
    assert {"app.version/0/macro_f1", "app.version/1/macro_f1"} <= found.keys()
    told = capsys.readouterr().out
    assert "by language" in told and "by app.version" in told and "(empty)" in told
    assert "by language" in (tmp_path / "run" / "report.md").read_text()


def test_of_many_values_the_most_frequent_are_told_and_the_others_counted(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    found = evaluate(files, tmp_path / "run", "[customer]")
    sizes = {name.split("/")[1]: one["n"] for name, one in found.items() if re.match("customer/.*/accuracy", name)}
    assert len(sizes) == 21 and sum(sizes.values()) == 60
    assert sizes["many"] == 20 and sizes["the other 21 values"] == 21


def test_the_page_can_be_filtered_by_the_columns_whatever_their_names_and_texts(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    evaluate(files, tmp_path / "run", "[outcome,customer]")
    page = (tmp_path / "run" / "answers.html").read_text()
    block = re.search(r'id="sets">(.*?)</script>', page, re.DOTALL)
    (facts,) = [one["facts"] for one in json.loads(block.group(1))] if block else [[]]
    assert [(one["name"], one["title"]) for one in facts] == [("by.outcome", "outcome"), ("by.customer", "customer")]
    assert [len(one["values"]) for one in facts] == [2, 21] and "<b>paid" not in page


def test_a_column_that_is_not_there_is_refused_with_those_that_are(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no column 'speech' to count by") as refused:
        evaluate(files, tmp_path / "run", "[speech]")
    assert "benchmark.by=[COLUMN]" in str(refused.value.hint) and "language" in str(refused.value.hint)
