"""Predictions files that can be read alone, and the switch that leaves the texts out."""

from pathlib import Path

from faithkit.files.jsonl import read_jsonl
from faithkit.provenance.predicted_rows import read_predicted_rows
from tests.running import evaluate_here

ROWS = ("benchmark=embedded", "benchmark.options.num_test=12", "num_examples=0")


def test_predictions_stand_beside_what_they_are_of(trained: Path, tmp_path: Path) -> None:
    evaluate_here(*ROWS, f"checkpoint={trained}", f"run_dir={tmp_path / 'own'}")
    file = tmp_path / "own" / "predictions" / "embedded.jsonl"
    rows = read_predicted_rows(file).rows
    assert len(rows) == 12 and all(row.has_text and row.example.label for row in rows.values())
    assert len({row.example.group for row in rows.values()}) < 12
    evaluate_here(*ROWS, f"predictions={file}", f"run_dir={tmp_path / 'given'}")
    assert (tmp_path / "given" / "predictions" / "embedded.jsonl").read_bytes() == file.read_bytes()


def test_texts_are_left_out_on_demand(trained: Path, tmp_path: Path) -> None:
    evaluate_here(*ROWS, f"checkpoint={trained}", f"run_dir={tmp_path / 'run'}", "save_texts=false")
    rows = list(read_jsonl(tmp_path / "run" / "predictions" / "embedded.jsonl"))
    assert all(row["gold"] and row["group"] for row in rows)
    assert not any({"knowledge", "history", "response"} & row.keys() for row in rows)
