"""A tagger's run from its command to its folder, and what else can be trained, resumed and refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from critic import Tagger
from critic.tagger.module import TaggerModule
from critic.tagger.span_calibration import tagger_labels
from critic.weights import load_classifier
from data_modules.build import build_source, read_block
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.cli import explain
from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl, read_predictions, write_jsonl
from faithkit.records import SPAN_LABELS, SPAN_TYPES
from faithkit.settings.config_files import display_name
from tests.running import (
    assert_same_run,
    break_at,
    curve,
    evaluate_here,
    metrics_of,
    resume_here,
    train_here,
    train_in_two,
)

PREDICTIONS = "predictions/embedded-ragtruth.jsonl"


@pytest.fixture(scope="module")
def gold() -> dict[str, Any]:
    rows = read_examples(build_source("ragtruth", "embedded"), "test", ReadReport("stop"), 60)
    return {row.id: row for row in rows}


def test_a_run_leaves_the_folder_that_outside_programs_rely_on(trained_tagger: Path, gold: dict[str, Any]) -> None:
    found = metrics_of(trained_tagger)
    for name in ("response_f1", "response_precision", "response_recall", "char_f1", "char_precision", "char_recall"):
        metric = found[f"test/embedded-ragtruth/{name}"]
        assert 0 <= metric["low"] <= metric["value"] <= metric["high"] <= 1 and metric["n"] == 60
    assert "test/embedded-ragtruth/task/qa/char_f1" in found and "test/embedded-ragtruth/response_ece" in found
    rows = list(read_jsonl(trained_tagger / PREDICTIONS))
    assert {row["id"] for row in rows} == gold.keys()
    for row_id, span in ((row["id"], span) for row in rows for span in row["spans"]):
        assert 0 <= span["start"] < span["end"] <= len(gold[row_id].response)
        assert span["label"] in SPAN_TYPES and 0 <= span["score"] <= 1
    sidecar = json.loads((trained_tagger / "hf" / "faithkit.json").read_text())
    assert sidecar["kind"] == "tagger" and sidecar["labels"] == list(tagger_labels(True))
    fitted = {"slope", "bias", "char_threshold", "response_threshold", "merge_gap", "min_length", "aim"}
    assert fitted <= sidecar["thresholds"].keys() and sidecar["layout"] == {"max_length": 96, "max_windows": 1}
    calibration = json.loads((trained_tagger / "metrics.json").read_text())["meta"]["calibration"]
    assert {"token_ece_before", "token_ece_after", "response_ece"} <= calibration.keys()


def test_padded_packed_and_plain_training_are_one(tmp_path: Path, tagger_options: list[str], monkeypatch: Any) -> None:
    same = ["model.dropout=0", "callbacks.log_every_num_steps=1", "logger=csv", "data.num_rows=30"]
    for packed in ("true", "false"):
        train_here(f"run_dir={tmp_path / packed}", *tagger_options, *same, f"model.packed={packed}")
    monkeypatch.setenv("FAITHKIT_FAST", "0")
    train_here(f"run_dir={tmp_path / 'plain'}", *tagger_options, *same)
    packed_losses, padded_losses, plain_losses = (curve(tmp_path / name) for name in ("true", "false", "plain"))
    assert len(packed_losses) > 3 and packed_losses == pytest.approx(padded_losses, abs=1e-4)
    assert plain_losses == pytest.approx(packed_losses, abs=1e-4)
    assert packed_losses[-1] != packed_losses[0]


def test_an_interrupted_run_resumes_to_the_same_weights(tmp_path: Path, tagger_options: list[str]) -> None:
    options = [*tagger_options, "callbacks.save_every_seconds=0", "model.focal_gamma=1", "data.num_rows=40"]
    train_here(f"run_dir={tmp_path / 'whole'}", *options)
    break_at(2, TaggerModule, tmp_path / "run", *options)
    with pytest.raises(UserError, match="has not finished"):
        Tagger.load(str(tmp_path / "run"))
    resume_here(tmp_path / "run")
    assert "resuming at step 2" in (tmp_path / "run" / "train.log").read_text()
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["ddp", "fsdp"])
def test_two_processes_take_the_steps_of_one(trainer: str, tmp_path: Path, tagger_options: list[str]) -> None:
    plain = [option for option in tagger_options if option != "trainer=cpu"]
    plain += ["model.dropout=0", "data.num_rows=40", "model.batch_size=5"]
    train_here(f"run_dir={tmp_path / 'one'}", *plain, "trainer=cpu")
    train_in_two(trainer, tmp_path / "two", *plain)
    one, both = (read_predictions(tmp_path / name / PREDICTIONS) for name in ("one", "two"))
    assert list(one) == list(both)
    assert all(both[i].score == pytest.approx(found.score, abs=1e-4) for i, found in one.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "more"),
    [
        ("embedded", ["data.num_train=60", "data.num_validation=40", "data.num_test=40"]),
        ("embedded", ["data.streaming=true", "data.num_train=60", "data.num_validation=40", "data.num_test=40"]),
        ("pairs", ["model.typed=false", "data.path=embedded"]),
        ("xsum_tokens", ["model.train_windows=2", "data.test_fraction=0.4"]),
        ("ragtruth", ["data.fold=1", "data.num_folds=3", "data.split=train", "model.support_weight=0"]),
    ],
)
def test_every_corpus_of_spans_trains(data: str, more: list[str], tmp_path: Path, tagger_options: list[str]) -> None:
    train_here(f"run_dir={tmp_path / 'run'}", *tagger_options, f"data={data}", *more)
    found, name = metrics_of(tmp_path / "run"), display_name(data, "embedded")
    assert {f"test/{name}/response_f1", f"test/{name}/char_f1"} <= found.keys()
    rows = read_jsonl(tmp_path / "run" / "predictions" / f"{name}.jsonl")
    labels = {span["label"] for row in rows for span in row["spans"]}
    # xsum_tokens and embedded mark spans without RAGTruth's types; of streamed rows it is not known before training.
    untyped = "model.typed=false" in more or (data != "ragtruth" and "data.streaming=true" not in more)
    assert labels <= ({SPAN_LABELS[-1]} if untyped else set(SPAN_TYPES))


@pytest.mark.slow
def test_types_are_those_of_spans_or_weights(trained_tagger: Path, tmp_path: Path, tagger_options: list[str]) -> None:
    untyped = [*tagger_options, "data=xsum_tokens", "model.typed=true"]
    train_here(f"run_dir={tmp_path / 'new'}", *untyped)
    assert Tagger.load(str(tmp_path / "new")).model.config.num_labels == 2
    assert "no training span has a type" in (tmp_path / "new" / "train.log").read_text()
    train_here(f"run_dir={tmp_path / 'on'}", *untyped, f"model.weights={trained_tagger / 'hf'}")
    assert Tagger.load(str(tmp_path / "on")).model.config.num_labels == 1 + len(SPAN_TYPES)


def test_training_goes_on_from_either(
    trained_tagger: Path, trained: Path, tmp_path: Path, tagger_options: list[str]
) -> None:
    options = [option for option in tagger_options if not option.startswith("model.weights")] + ["data.num_rows=30"]
    before = Tagger.load(str(trained_tagger)).model.state_dict()
    after = load_classifier(str(trained_tagger / "hf"), tagger_labels(True), of_tokens=True).state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before), "the head too"
    train_here(f"run_dir={tmp_path / 'critic'}", *options, f"model.weights={trained / 'hf'}")
    assert "test/embedded-ragtruth/char_f1" in metrics_of(tmp_path / "critic")
    with pytest.raises(UserError, match="5 classes"):
        train_here(f"run_dir={tmp_path}/no", *options, f"model.weights={trained_tagger}/hf", "model.typed=false")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["optimizer.lr=1e30", "model.gradient_clip_val=null", "callbacks.log_every_num_steps=1"], "the loss became"),
        (["data=faithcritic"], "no validation example has annotated spans"),
        (["model.max_length=512"], "model.max_length is 512, but this encoder reads at most 128 tokens"),
        (["model.max_length=16"], "model.max_length is 16"),
        (["model.max_windows=0"], "model.max_windows is 0"),
        (["data.fold=5"], "data.fold is 5"),
    ],
)
def test_what_cannot_train_is_explained(more: list[str], words: str, tmp_path: Path, tagger_options: list[str]) -> None:
    with pytest.raises(Exception) as caught:  # Hydra wraps what its objects raise
        train_here(f"run_dir={tmp_path / 'run'}", *tagger_options, *more)
    told = explain(caught.value) or ""
    assert told.startswith(words) and "hint: " in told and len(told.splitlines()) <= 5


def test_another_tools_spans_are_scored(tmp_path: Path) -> None:
    drawn = read_block({"dataset": "ragtruth", "path": "embedded", "split": "test", "num_rows": 60})
    rows: list[dict[str, Any]] = []
    for e in drawn:
        spans = [{"start": s.start, "end": s.end, "label": s.label} for s in e.spans or ()]
        rows.append({"id": e.id, "label": e.label, "spans": spans})
    file = tmp_path / "perfect.jsonl"
    line = ["benchmark=ragtruth", "benchmark.num_rows=60", f"predictions={file}"]
    write_jsonl(file, rows)
    evaluate_here(*line, f"run_dir={tmp_path / 'run'}")
    found = metrics_of(tmp_path / "run")
    assert found["test/embedded-ragtruth/char_f1"]["value"] == found["test/embedded-ragtruth/response_f1"]["value"] == 1
    place, one = next((place, e) for place, e in enumerate(drawn) if e.spans)
    rows[place]["spans"] = [{"start": 0, "end": len(one.response) + 1, "label": "hallucination"}]
    write_jsonl(file, rows)
    with pytest.raises(UserError, match="beyond the response") as caught:
        evaluate_here(*line, f"html={tmp_path / 'bad.html'}", f"run_dir={tmp_path / 'bad'}")
    assert one.id in str(caught.value) and len((explain(caught.value) or "").splitlines()) <= 5
    assert not (tmp_path / "bad.html").exists()
