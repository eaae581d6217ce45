"""evaluate.py fits its baselines as the model was fitted, or on rows that are named for both."""

import json
from pathlib import Path

import pytest

from data_modules.embedded.layouts import written_layout
from faithkit.errors import UserError
from tests.running import evaluate_here, metrics_of


@pytest.fixture(scope="module")
def begin() -> str:
    return written_layout("begin", {"validation": 120, "test": 80})


def evaluate(begin: str, folder: Path, *given: str) -> None:
    evaluate_here("benchmark=begin", "verbose=true", f"benchmark.path={begin}", f"run_dir={folder}", *given)


def test_the_baseline_takes_the_threshold_of_the_rows_that_the_models_came_from(
    begin: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = json.loads((trained / "hf" / "faithkit.json").read_text())["origin"]["baselines"]["word_overlap"]
    assert kept["num_rows"] == 60 and 0 <= kept["macro_f1"] <= 1.1
    evaluate(begin, tmp_path / "a", f"checkpoint={trained}")
    assert "60 validation rows of the training" in " ".join(capsys.readouterr().out.split())


def test_named_rows_fit_every_baseline_and_the_model_itself(
    begin: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, fit_on = tmp_path / "run", f"benchmark.fit_on=[{{dataset: begin, path: '{begin}', split: validation}}]"
    evaluate(begin, folder, f"checkpoint={trained}", fit_on)
    shown, found = capsys.readouterr(), metrics_of(folder)
    for key in ("majority", "overlap", "length", "counted", "refitted"):
        value = found["test/begin/macro_f1"]["value"] - found[f"test/begin/{key}_macro_f1"]["value"]
        assert found[f"test/begin/difference/{key}_macro_f1"]["value"] == pytest.approx(value)
        assert f"test/begin/p_value/{key}_macro_f1" in found
    told = " ".join(shown.out.split())
    assert "rows of begin" in told and "model, threshold" in told
    threshold = json.loads((folder / "metrics.json").read_text())["meta"]["test_sets"]["begin"]["threshold"]
    assert f"to use it: faithkit score ... threshold={threshold:.4f}" in told
    ours = [json.loads(line)["score"] for line in (folder / "predictions" / "begin.jsonl").read_text().splitlines()]
    assert min(ours) <= threshold <= max(ours)
    rows = (folder / "predictions" / "begin-fit_on.jsonl").read_text().splitlines()
    # Without a model its own threshold stays, and the baselines are fitted all the same.
    given = f"predictions={folder / 'predictions' / 'begin.jsonl'}"
    evaluate(begin, tmp_path / "given", given, fit_on)
    again = metrics_of(tmp_path / "given")
    assert again["test/begin/counted_macro_f1"] == found["test/begin/counted_macro_f1"]
    assert "test/begin/refitted_macro_f1" not in again and len(rows) > 60


def test_rows_whose_knowledge_is_tested_fit_nothing(begin: str, trained: Path, tmp_path: Path) -> None:
    tested = f"benchmark.fit_on=[{{dataset: begin, path: '{begin}', split: test}}]"
    with pytest.raises(UserError, match="no labelled row of begin is left"):
        evaluate(begin, tmp_path, f"checkpoint={trained}", tested)
