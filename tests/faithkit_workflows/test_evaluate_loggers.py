"""evaluate.py logs what it found: metrics with their intervals and a sample, to each logger that is asked for."""

import csv
import json
from pathlib import Path

import pytest

from data_modules.embedded.corpus import Embedded
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.files.jsonl import write_jsonl
from tests.faithkit.training.wandb_files import offline_runs, table_of
from tests.running import evaluate_here

ROWS = ("benchmark=embedded", "benchmark.options.num_test=24")


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    """A predictions file of a tool that calls everything hallucinated."""
    examples = read_examples(Embedded(num_test=24), "test", ReadReport())
    file = tmp_path / "given.jsonl"
    write_jsonl(file, ({"id": example.id, "label": "hallucinated", "score": 0.9} for example in examples))
    return file


def test_metrics_and_a_sample_reach_every_logger(predictions: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    loggers = ("logger=[csv,tensorboard,wandb]", "logger.wandb.offline=true", "num_examples=3")
    evaluate_here(*ROWS, f"predictions={predictions}", f"run_dir={run}", *loggers)
    metrics = json.loads((run / "metrics.json").read_text())["metrics"]
    with (run / "csv" / "test_metrics.csv").open(newline="") as file:
        rows = {row["metric"]: row for row in csv.DictReader(file)}
    assert rows.keys() == metrics.keys()
    f1 = metrics["test/embedded/macro_f1"]
    assert {name: float(rows["test/embedded/macro_f1"][name]) for name in ("value", "low", "high", "n")} == f1
    with (run / "csv" / "test_predictions.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3
    assert list((run / "tensorboard").iterdir())
    (found,) = offline_runs(run)
    assert found.exit_code == 0 and found.names.job_type == "evaluate"
    assert found.summary["test/embedded/macro_f1/high"] == f1["high"]
    assert len(table_of(found, "test/embedded/predictions")["data"]) == 3
