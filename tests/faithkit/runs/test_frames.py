"""Metrics, predictions and curves as data frames."""

import warnings
from pathlib import Path

import pytest

from faithkit import runs
from faithkit.files.jsonl import write_jsonl
from faithkit.runs.reading import differing_settings
from tests.faithkit.runs.folders import EVALUATED, F1, ROWS, TRAINED, make_run

OTHER = {**TRAINED, "seed": 2, "optimizer": {"lr": 0.002}, "model": {**TRAINED["model"], "optimizer": {"lr": 0.002}}}
SAME = {**TRAINED, "model": {**TRAINED["model"], "optimizer": {"lr": 0.001}}}


@pytest.fixture(autouse=True)
def no_warning() -> None:
    warnings.simplefilter("error")


def test_every_metric_is_a_row_with_the_settings_that_differ(tmp_path: Path) -> None:
    make_run(tmp_path / "2026-01-01_00-00-00-a", SAME)
    make_run(tmp_path / "2026-01-02_00-00-00-b", OTHER, {"test/begin/all/f1": {"value": 1}, "short": F1})
    frame = runs.to_pandas(tmp_path)
    numbers = [str(frame[name].dtype) for name in ("value", "low", "high", "n")]
    assert numbers == ["float64", "float64", "float64", "Int64"]
    assert list(zip(frame["split"], frame["dataset"], frame["metric"], strict=True)) == [
        ("test", "faithcritic", "macro_f1"),
        ("test", "begin", "all/f1"),
        ("", "", "short"),
    ]
    assert frame["value"].tolist() == [0.75, 1.0, 0.75] and frame["low"].isna().tolist() == [False, True, False]
    assert frame["optimizer.lr"].tolist() == [0.001, 0.002, 0.002], "and not once more as model.optimizer.lr"
    assert set(frame.columns[12:]) == {"seed", "optimizer.lr"}
    assert frame["script"].eq("train").all() and frame["state"].eq("finished").all()
    assert frame.attrs["problems"] == []
    wide = frame.pivot(index="run", columns="metric", values="value")
    assert wide.loc["2026-01-01_00-00-00-a", "macro_f1"] == 0.75


def test_settings_that_one_script_alone_has_do_not_differ(tmp_path: Path) -> None:
    scale = {"name": "local", "critic": {"lr": 0.1}}
    make_run(tmp_path / "a", {**TRAINED, "scale": scale})
    make_run(tmp_path / "b", {**TRAINED, "scale": {**scale, "critic": {"lr": 0.2}}, "data": {"name": "mnli"}})
    make_run(tmp_path / "c", {**EVALUATED, "seed": 1})
    assert list(differing_settings(runs.find_runs(tmp_path))) == ["data.name", "data.path"]


def test_a_class_that_differs_is_named_as_it_was_chosen(tmp_path: Path) -> None:
    for name, target in (("a", "generation.objectives.mle.Mle"), ("b", "generation.objectives.infonce.InfoNce")):
        make_run(tmp_path / name, {**TRAINED, "objective": {"_target_": target}})
    assert differing_settings(runs.find_runs(tmp_path)) == {"objective": ["mle", "infonce"]}


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        make_run(tmp_path / parent / "seed1")
    given = [*runs.find_runs(tmp_path / "a"), tmp_path / "b" / "*"]
    assert runs.to_pandas(given)["run"].tolist() == [str(tmp_path / parent / "seed1") for parent in ("a", "b")]


def test_every_prediction_is_a_row_and_two_runs_stand_side_by_side(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    told = [{**ROWS[0], "score": 0.2, "gold": "faithful", "response": "=1+1", "facts": {"task": "qa"}}]
    make_run(tmp_path / "b", EVALUATED, predictions={"faithcritic": told, "other": ROWS})
    frame = runs.predictions_to_pandas(tmp_path / "*", file="faithcritic")
    expected = ["run", "file", "id", "label", "score", "spans", "text", "gold", "response", "facts.task"]
    assert list(frame.columns) == expected
    pairs = frame.pivot(index="id", columns="run", values="score")
    assert pairs.loc["a"].tolist() == [0.9, 0.2] and pairs.loc["b"].isna().tolist() == [False, True]
    assert frame["spans"][0] == ROWS[0]["spans"] and frame["facts.task"].tolist()[2] == "qa"
    assert len(runs.predictions_to_pandas(tmp_path / "*")) == 5


def test_what_cannot_be_read_is_told_and_the_rest_is_there(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", metrics={"test/x/nan": {"value": float("nan")}, "test/x/f1": F1})
    path = folder / "predictions" / "faithcritic.jsonl"
    path.write_text(path.read_text() + '[1]\n{"label": "faithful"}\n{"id": "c", "score": "high"}\n{"id": "d", "lab')
    with pytest.warns(UserWarning, match="the metric 'test/x/nan' is left out"):
        assert runs.to_pandas(folder)["metric"].tolist() == ["f1"]
    with pytest.warns(UserWarning, match="lines that are not predictions are left out: 3"):
        frame = runs.predictions_to_pandas(folder)
    assert frame["id"].tolist() == ["a", "b", "c"] and frame["score"].isna().tolist() == [False, False, True]
    path.write_bytes(b'{"id": "a"}\n\xff\xfe')
    with pytest.warns(UserWarning, match="cannot be read"):
        assert len(runs.predictions_to_pandas(folder).attrs["problems"]) == 1


def test_runs_without_metrics_or_predictions_give_empty_frames(tmp_path: Path) -> None:
    make_run(tmp_path / "a", metrics={}, predictions={})
    assert runs.to_pandas(tmp_path).empty and runs.predictions_to_pandas(tmp_path).empty
    write_jsonl(tmp_path / "a" / "predictions" / "none.jsonl", [])
    assert list(runs.predictions_to_pandas(tmp_path).columns[:3]) == ["run", "file", "id"]


def test_every_point_of_the_curves_is_a_row(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    frame = runs.curves_to_pandas(tmp_path)
    assert frame.to_numpy().tolist() == [
        ["a", "train/loss", 10, 0.5],
        ["a", "train/loss", 20, 0.25],
        ["a", "validation/f1", 20, 0.75],
    ]
