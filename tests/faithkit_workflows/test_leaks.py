"""The scripts tell of rows that a model has seen, and of where predictions are from."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from data_modules.build import build_source
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.files.model_folder import read_stored, seal
from faithkit.provenance.row_keys import row_keys
from faithkit.provenance.used_model import (
    CALIBRATED,
    CHOSEN,
    SEEN_ROWS_FILE,
    TRAINED,
    SeenRows,
    UsedModel,
    read_origin,
    read_seen,
    write_origin,
)
from tests.faithkit_workflows.test_evaluate import GOOD, dialogues, responses
from tests.running import SMALL, evaluate_here, metrics_of, train_here

EMBEDDED = ("benchmark=embedded", "num_examples=0")
LEAKING = (*EMBEDDED, "benchmark.split=train", "+benchmark.options.num_train=240")  # 160 of these are trained on


def meta(run: Path) -> dict[str, Any]:
    return json.loads((run / "metrics.json").read_text())["meta"]["test_sets"]["embedded"]


def seen_by(run: Path) -> SeenRows:
    seen = read_seen(run / "hf")
    assert seen is not None
    return seen


def without_file(run: Path, copy: Path) -> Path:
    """A run as it was before models held what they have seen."""
    shutil.copytree(run, copy)
    (copy / "hf" / SEEN_ROWS_FILE).unlink()
    stored = read_stored(run / "hf")
    assert stored is not None
    seal(copy / "hf", stored)
    return copy


def test_training_says_what_its_test_shares_with_it(trained: Path) -> None:
    found = meta(trained)
    assert found["rows"]["num_rows"] == 60 and found["rows"]["split"] == "test"
    [model] = found["models"]
    assert model["kind"] == "critic" and "chosen for macro_f1 on validation (embedded: 60 rows)" in model["threshold"]
    assert model["leaks"][TRAINED] == {"rows": 0, "knowledge": 0, "groups": 0}
    lists = seen_by(trained).lists
    assert [len(lists[use, "row"]) for use in (TRAINED, CHOSEN, CALIBRATED)] == [160, 60, 60]


def test_leaked_rows_are_left_out_beside_and_predictions_are_followed_to_their_model(trained, tmp_path, capsys) -> None:
    def told(name: str, *more: str) -> str:
        evaluate_here(*LEAKING, *more, f"run_dir={tmp_path / name}")
        return " ".join(capsys.readouterr().out.split())

    shown = told("run", "verbose=true", f"checkpoint={trained}")
    [model] = meta(tmp_path / "run")["models"]
    assert model["leaks"][TRAINED]["rows"] == 160 and model["leaks"]["of"]["rows"] == 240
    found = metrics_of(tmp_path / "run")
    left = found["test/embedded/without_leaked/macro_f1"]
    assert found["test/embedded/macro_f1"]["n"] == 240 and left["n"] == 72  # a dialogue goes on behind row 160
    assert left["low"] <= left["value"] <= left["high"]
    counts = " | ".join(str(model["leaks"][TRAINED][name]) for name in ("rows", "knowledge", "groups"))
    for part in ("168 of 240 rows are not new to", "72 new rows", f"trained on | {counts}"):
        assert part in shown, part

    file = tmp_path / "run" / "predictions" / "embedded.jsonl"
    told("again", f"predictions={file}")
    assert meta(tmp_path / "again") == meta(tmp_path / "run")
    origin = file.with_name("embedded.origin.json")
    stored, text = origin.read_text(), file.read_text()
    others = json.loads(stored)
    others["rows"]["rows"] = "0" * 32  # the same ids, of other texts
    origin.write_text(json.dumps(others))
    assert "predictions were made on other rows: embedded train, 240 rows 00000000" in told(
        "old", f"predictions={file}"
    )
    origin.write_text(stored)
    file.write_text(text.replace('"text": ""', '"text": " "'))
    assert "embedded.jsonl was changed since embedded.origin.json was written" in told("new", f"predictions={file}")
    assert meta(tmp_path / "new")["models"] == []
    told("named", f"predictions={file}", f"checkpoint={trained}")
    assert meta(tmp_path / "named")["models"][0]["leaks"][TRAINED]["rows"] == 160


@pytest.mark.parametrize(
    ("block", "value"), [("models", 5), ("models", [{}]), ("rows", {"rows": 1}), ("rows", "x"), ("predictions", None)]
)
def test_a_damaged_origin_is_none(tmp_path, block, value) -> None:
    file = tmp_path / "given.jsonl"
    file.write_text("")
    model = UsedModel(role="checkpoint", path="runs/a", weights="0f")
    write_origin(file, "rows", [], [model])
    path = file.with_suffix(".origin.json")
    assert read_origin(file).models[0].path == "runs/a"
    path.write_text(json.dumps(json.loads(path.read_text()) | {block: value}))
    assert read_origin(file).reason == "given.origin.json is damaged"


@pytest.mark.parametrize("path", ["é" * 300, "a\0b", "/" * 5000])
def test_an_origin_may_name_a_path_that_cannot_be(tmp_path, path) -> None:
    file = tmp_path / "given.jsonl"
    file.write_text("")
    write_origin(file, "rows", [], [UsedModel(role="checkpoint", path=path)])
    assert "no longer at that place" in read_origin(file).models[0].reason


@pytest.mark.parametrize("is_old", [False, True])
def test_weights_bring_what_they_had_seen(trained, tmp_path, is_old, capsys) -> None:
    begin = without_file(trained, tmp_path / "old") if is_old else trained
    options = (f"model.weights={begin / 'hf'}", f"run_dir={tmp_path / 'run'}", "logger=none", "data.corpus_seed=5")
    train_here(*SMALL, *options, "model.num_epochs=1", "data.num_train=32")
    own, seen = 32, seen_by(tmp_path / "run")
    assert len(seen.lists[TRAINED, "row"]) == own + (0 if is_old else 160)
    assert seen.unknown_bases == ((str(begin / "hf"),) if is_old else ())
    assert ("which training began with" in capsys.readouterr().out) == is_old


def test_streamed_rows_are_seen_too(trained, tiny_bert, tmp_path) -> None:
    options = (f"model.weights={tiny_bert}", f"run_dir={tmp_path / 'run'}", "logger=none", "data.streaming=true")
    train_here(*SMALL, *options, "model.num_epochs=1", "data.max_tokens=null", "data.batch_size=8")
    cached, streamed = seen_by(trained).lists, seen_by(tmp_path / "run").lists
    assert all((streamed[name] == cached[name]).all() for name in cached)


def test_rows_that_a_judge_was_trained_on_are_reported(trained, tmp_path, capsys) -> None:
    """A judge that was trained on two of the tested turns."""
    path, file = dialogues(tmp_path), responses(tmp_path / "good.jsonl", GOOD)
    source, judge = build_source("faithdial", str(path)), tmp_path / "judge"
    turns = list(read_examples(source, "test", ReadReport()))
    shutil.copytree(trained, judge)
    SeenRows.of({TRAINED: [row_keys(turns[:2])]}).write(judge / "hf")
    stored = read_stored(judge / "hf")
    assert stored is not None
    seal(judge / "hf", stored)
    options = ("benchmark=faithdial", f"benchmark.path={path}", "benchmark.bert_score.encoder=null", "num_examples=0")
    evaluate_here(*options, f"predictions={file}", f"benchmark.critic={judge}", f"run_dir={tmp_path / 'run'}")
    told = json.loads((tmp_path / "run" / "metrics.json").read_text())
    [model] = told["meta"]["test_sets"]["faithdial"]["models"]
    assert model["role"] == "judge" and model["leaks"][TRAINED] == {"rows": 2, "knowledge": 1, "groups": 1}
    assert told["metrics"]["test/faithdial/without_leaked/critic_rate"]["n"] == 4
    assert told["metrics"]["test/faithdial/without_leaked/bleu"]["n"] == 4
    shown = capsys.readouterr().out
    assert f"2 of 6 rows are not new to judge {judge}" in shown and "their model is unknown" in shown
