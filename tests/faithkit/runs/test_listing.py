"""The list of runs, as a user reads it."""

from pathlib import Path
from typing import Any

import pytest

from faithkit.files.run_folder import write_config
from faithkit.pages.page_tables import render_text
from faithkit.runs import read_run
from faithkit.runs.listing import described, list_runs, main_metric
from tests.faithkit.runs.folders import EVALUATED, F1, TRAINED, make_run


def test_the_list_says_what_ran_on_what_with_its_metric_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(Path("runs/2026-01-01_10-30-00-a"))
    cut = make_run(Path("runs/2026-01-02_00-00-00-b"), EVALUATED)
    (cut / "metrics.json").write_text("{")
    table, lines = list_runs()
    rows = [[cell.strip() for cell in line.split("|")] for line in render_text(table, width=200).splitlines()[3:]]
    assert rows == [
        [
            *("runs/2026-01-01_10-30-00-a", "2026-01-01 10:30", "train critic on embedded-faithcritic"),
            *("macro_f1 0.750 [0.500, 0.875]", "finished"),
        ],
        ["runs/2026-01-02_00-00-00-b", "2026-01-02 00:00", "evaluate critic on begin", "-", "resumable"],
    ]
    assert lines[0] == "resume: faithkit evaluate resume=runs/2026-01-02_00-00-00-b"
    assert lines[1].startswith("note: runs/2026-01-02_00-00-00-b: metrics.json cannot be read")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**EVALUATED, "checkpoint": None, "engine": {"model": "smollm2-135m"}}, "evaluate smollm2-135m on begin"),
        ({**EVALUATED, "checkpoint": None, "predictions": "/x"}, "evaluate predictions on begin"),
        (
            {**EVALUATED, "benchmark": {"name": "x", "datasets": {"a": {}, "b": {"dataset": "wow"}}}},
            "evaluate critic on a, wow",
        ),
        (
            {"pipeline": {"name": "describe", "dataset": "ragtruth", "path": "embedded"}},
            "construct describe on embedded-ragtruth",
        ),
        ({"path": "/data/my.csv", "checkpoint": "runs/c", "columns": {"id": "id"}}, "score c on my.csv"),
        (
            {**TRAINED, "objective": {"_target_": "generation.objectives.infonce.InfoNCE"}},
            "train critic infonce on embedded-faithcritic",
        ),
        ({"data": [1], "benchmark": "x", "objective": {"_target_": 5}}, "evaluate"),
        ({"checkpoint": "runs/t5", "decoding": {"strategy": "beam"}, "data": {"name": "wow"}}, "generate t5 on wow"),
        ({"checkpoint": "runs/t5", "decoding": {}, "data": {}}, "t5"),
    ],
)
def test_what_was_run(config: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert described(read_run(make_run(tmp_path / "run", config))) == words


def test_the_metric_that_chose_the_checkpoint_stands_for_a_training(tmp_path: Path) -> None:
    metrics = {"test/x/all/auroc": F1, "test/x/macro_f1": F1, "test/x/auroc": F1}
    config = {**TRAINED, "callbacks": {"monitor": "validation/y/auroc"}}
    found = main_metric(read_run(make_run(tmp_path / "a", config, metrics)))
    assert found is not None and found[0] == "test/x/auroc"
    found = main_metric(read_run(make_run(tmp_path / "b", EVALUATED, metrics)))
    assert found is not None and found[0] == "test/x/macro_f1"
    assert main_metric(read_run(make_run(tmp_path / "c", metrics={}))) is None


def test_the_command_that_goes_on_can_be_typed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a run")
    (run / "metrics.json").unlink()
    assert f"resume: faithkit train 'resume={run}'" in list_runs(run)[1]
    write_config(run / "config.yaml", {"columns": {"id": "id"}})
    assert f"resume: faithkit score 'resume={run}'" in list_runs(run)[1]


def test_names_with_markup_or_control_characters_stay_text(tmp_path: Path) -> None:
    make_run(tmp_path / "[red]\x1b[31mx", {**TRAINED, "model": {"name": "[bold]\x07critic"}})
    table, _ = list_runs(tmp_path)
    text = render_text(table, width=200)
    assert "[red]" in text and "[bold]" in text and "\x1b" not in text and "\x07" not in text
