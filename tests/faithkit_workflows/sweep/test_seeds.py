"""`seeds=[...]`: a training by each seed in one run, the mean of their test metrics, and a resume of the rest."""

import json
from pathlib import Path
from statistics import mean, stdev

import pytest

from faithkit.errors import UserError
from tests.running import SMALL, commanded, train_here


@pytest.mark.slow
def test_every_seed_is_trained_once_and_the_mean_is_reported(
    tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [f"model.weights={tiny_bert}", *SMALL, "logger=none", "seeds=[1,2,3]", f"run_dir={tmp_path / 'run'}"]
    train_here(*given)
    run = tmp_path / "run"
    runs = [json.loads((run / f"seed{seed}" / "metrics.json").read_text()) for seed in (1, 2, 3)]
    assert [one["meta"]["config"]["seed"] for one in runs] == [1, 2, 3]
    values = [one["metrics"]["test/embedded/auroc"]["value"] for one in runs]
    found = json.loads((run / "metrics.json").read_text())["metrics"]["test/embedded/auroc"]
    assert found["value"] == pytest.approx(mean(values)) and stdev(values) > 0 and found["low"] < found["high"]
    shown, report = capsys.readouterr().out, (run / "report.md").read_text()
    assert shown.count("mean of 3 seeds") == 1 and "every metric" not in shown and "every metric" in report
    assert shown.splitlines()[-1] == f"answers: {(run / 'answers.html').as_uri()}"
    page = (run / "answers.html").read_text()
    assert all(f"embedded, seed {seed}" in page for seed in (1, 2, 3)) and "mean of 3 seeds" in page
    for file in (run / "metrics.json", run / "seed3" / "metrics.json"):
        file.unlink()
    before = (run / "seed1" / "train.log").read_text()
    with commanded([f"resume={run}"]):
        train_here(f"resume={run}")
    assert (run / "seed1" / "train.log").read_text() == before, "a finished seed is left alone"
    again = json.loads((run / "metrics.json").read_text())["metrics"]["test/embedded/auroc"]
    assert again == found


@pytest.mark.parametrize("seeds", ["[1]", "[1,1]", "[a,b]", "3"])
def test_other_seeds_are_refused(seeds: str, tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"seeds=\[1,2,3\]"):
        train_here(f"model.weights={tiny_bert}", *SMALL, f"seeds={seeds}", f"run_dir={tmp_path / 'run'}")
