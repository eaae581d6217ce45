"""The longest commands of the first pages, run as they stand but smaller."""

import json
from pathlib import Path

import pytest

from tests.running import SMALL, evaluate_here, train_here


@pytest.mark.slow
def test_the_transfer_table_is_one_command(tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = [option for option in SMALL if not option.startswith("data.")]
    overrides = [f"model.weights={tiny_bert}", "data.num_rows=100", "logger=none", "callbacks.num_examples=0", *small]
    options = [f"benchmark.test.{name}.num_rows=60" for name in ("mnli", "begin", "faithcritic")]
    quoted = ",".join(f"'{override}'" for override in overrides)
    evaluate_here("benchmark=transfer", f"benchmark.overrides=[{quoted}]", *options, f"run_dir={tmp_path / 'run'}")
    shown = capsys.readouterr().out
    for part in ("DECODE", "DNLI", "MNLI", "FaithCritic", "71.6", "majority", "embedded corpus"):
        assert part in shown, part


@pytest.mark.slow
@pytest.mark.network
def test_the_demo_learns(tmp_path: Path) -> None:

    train_here(f"run_dir={tmp_path / 'run'}", "callbacks.progress_bar=false")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]
    assert metrics["test/embedded/macro_f1"]["low"] > 0.7
    assert metrics["test/embedded/difference/counted_macro_f1"]["low"] > 0.08, "above what counting gives"
