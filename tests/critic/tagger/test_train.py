"""A tagger's run from its command to its folder, and what else can be trained, resumed and refused."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from critic import Tagger
from critic.tagger.module import TaggerModule
from critic.tagger.settings import tagger_labels
from faithkit.cli import explain
from faithkit.embedded_name import display_name
from faithkit.errors import UserError
from faithkit.records import SPAN_LABELS, SPAN_TYPES
from tests.running import evaluate_here, run, train_here


def metrics_of(folder: Path) -> dict[str, dict[str, float]]:
    return json.loads((folder / "metrics.json").read_text())["metrics"]


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def losses(folder: Path) -> list[float]:
    with (folder / "csv" / "metrics.csv").open() as file:
        return [float(row["train/loss"]) for row in csv.DictReader(file) if row.get("train/loss")]


def state(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def answers(split: str = "test", dataset: str = "ragtruth") -> dict[str, Any]:
    from data_modules.build import build_source
    from data_modules.reading.dataset import read_examples
    from data_modules.reading.rows import ReadReport

    return {e.id: e for e in read_examples(build_source(dataset, "embedded"), split, ReadReport("stop"), 60)}


def test_a_run_leaves_the_folder_that_outside_programs_rely_on(trained_tagger: Path) -> None:
    found = metrics_of(trained_tagger)
    for name in ("response_f1", "response_precision", "response_recall", "char_f1", "char_precision", "char_recall"):
        metric = found[f"test/embedded-ragtruth/{name}"]
        assert 0 <= metric["low"] <= metric["value"] <= metric["high"] <= 1 and metric["n"] == 60
    assert "test/embedded-ragtruth/task/qa/char_f1" in found and "test/embedded-ragtruth/response_ece" in found
    gold = answers()
    rows = rows_of(trained_tagger / "predictions" / "embedded-ragtruth.jsonl")
    assert {row["id"] for row in rows} == gold.keys()
    for row in rows:
        for span in row["spans"]:
            assert 0 <= span["start"] < span["end"] <= len(gold[row["id"]].response)
            assert span["label"] in SPAN_TYPES and 0 <= span["score"] <= 1
    sidecar = json.loads((trained_tagger / "hf" / "faithkit.json").read_text())
    assert sidecar["kind"] == "tagger" and sidecar["labels"] == list(tagger_labels(True))
    fitted = {"slope", "bias", "char_threshold", "response_threshold", "merge_gap", "min_length", "aim"}
    assert fitted <= sidecar["thresholds"].keys() and sidecar["layout"] == {"max_length": 96, "max_windows": 1}
    calibration = json.loads((trained_tagger / "metrics.json").read_text())["meta"]["calibration"]
    assert {"token_ece_before", "token_ece_after", "response_ece"} <= calibration.keys()


def test_padded_training_takes_the_steps_of_packed_training(tmp_path: Path, tagger_options: list[str]) -> None:
    same = ["model.dropout=0", "callbacks.log_every_num_steps=1", "logger=csv", "data.num_rows=30"]
    for packed in ("true", "false"):
        train_here(f"run_dir={tmp_path / packed}", *tagger_options, *same, f"model.packed={packed}")
    packed_losses, padded_losses = losses(tmp_path / "true"), losses(tmp_path / "false")
    assert len(packed_losses) > 3 and packed_losses == pytest.approx(padded_losses, abs=1e-4)
    assert packed_losses[-1] != packed_losses[0]


def test_an_interrupted_run_resumes_to_the_same_weights(
    tmp_path: Path, tagger_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [*tagger_options, "callbacks.save_every_seconds=0", "model.focal_gamma=1", "data.num_rows=40"]
    train_here(f"run_dir={tmp_path / 'whole'}", *options)
    step = TaggerModule.training_step

    def broken(self: TaggerModule, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        if batch_idx == 2:
            raise RuntimeError("the power fails")
        return step(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(TaggerModule, "training_step", broken)
        with pytest.raises(RuntimeError, match="the power fails"):
            train_here(f"run_dir={tmp_path / 'run'}", *options)
    with pytest.raises(UserError, match="has not finished"):
        Tagger.load(str(tmp_path / "run"))
    with monkeypatch.context() as patch:
        given = SimpleNamespace(overrides=SimpleNamespace(task=[f"resume={tmp_path / 'run'}"]))
        patch.setattr("hydra.core.hydra_config.HydraConfig.get", lambda: given)
        train_here(f"resume={tmp_path / 'run'}")
    assert "resuming at step 2" in (tmp_path / "run" / "train.log").read_text()
    ours, theirs = state(tmp_path / "run"), state(tmp_path / "whole")
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["ddp", "fsdp"])
def test_two_processes_take_the_steps_of_one(trainer: str, tmp_path: Path, tagger_options: list[str]) -> None:
    plain = [option for option in tagger_options if option != "trainer=cpu"]
    plain += ["model.dropout=0", "data.num_rows=40", "model.batch_size=5"]
    train_here(f"run_dir={tmp_path / 'one'}", *plain, "trainer=cpu")
    two = [f"trainer={trainer}", "trainer.accelerator=cpu", "trainer.devices=2"]
    done = run("train.py", f"run_dir={tmp_path / 'two'}", *plain, *two)
    assert done.returncode == 0, done.stderr
    one, both = (rows_of(tmp_path / name / "predictions" / "embedded-ragtruth.jsonl") for name in ("one", "two"))
    assert [row["id"] for row in one] == [row["id"] for row in both]
    for first, second in zip(one, both, strict=True):
        assert second["score"] == pytest.approx(first["score"], abs=1e-4)


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
def test_every_corpus_of_spans_trains_a_tagger(
    data: str, more: list[str], tmp_path: Path, tagger_options: list[str]
) -> None:
    train_here(f"run_dir={tmp_path / 'run'}", *tagger_options, f"data={data}", *more)
    found, name = metrics_of(tmp_path / "run"), display_name(data, "embedded")
    assert {f"test/{name}/response_f1", f"test/{name}/char_f1"} <= found.keys()
    rows = rows_of(tmp_path / "run" / "predictions" / f"{name}.jsonl")
    labels = {span["label"] for row in rows for span in row["spans"]}
    # xsum_tokens and embedded mark spans without RAGTruth's types; of streamed rows it is not known before training.
    untyped = "model.typed=false" in more or (data != "ragtruth" and "data.streaming=true" not in more)
    assert labels <= ({SPAN_LABELS[-1]} if untyped else set(SPAN_TYPES))


@pytest.mark.slow
def test_no_type_is_told_where_no_span_of_training_had_one_unless_the_weights_know_types(
    trained_tagger: Path, tmp_path: Path, tagger_options: list[str]
) -> None:
    untyped = [*tagger_options, "data=xsum_tokens", "model.typed=true"]
    train_here(f"run_dir={tmp_path / 'new'}", *untyped)
    assert Tagger.load(str(tmp_path / "new")).model.config.num_labels == 2
    assert "no training span has a type" in (tmp_path / "new" / "train.log").read_text()
    train_here(f"run_dir={tmp_path / 'on'}", *untyped, f"model.weights={trained_tagger / 'hf'}")
    assert Tagger.load(str(tmp_path / "on")).model.config.num_labels == 1 + len(SPAN_TYPES)


def test_training_goes_on_from_a_tagger_or_a_critic(
    trained_tagger: Path, trained: Path, tmp_path: Path, tagger_options: list[str]
) -> None:
    options = [option for option in tagger_options if not option.startswith("model.weights")] + ["data.num_rows=30"]
    from critic.weights import load_classifier

    before = Tagger.load(str(trained_tagger)).model.state_dict()
    after = load_classifier(str(trained_tagger / "hf"), tagger_labels(True), of_tokens=True).state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before), "the head too"
    train_here(f"run_dir={tmp_path / 'critic'}", *options, f"model.weights={trained / 'hf'}")
    assert "test/embedded-ragtruth/char_f1" in metrics_of(tmp_path / "critic")
    with pytest.raises(UserError, match="5 classes"):
        train_here(
            f"run_dir={tmp_path / 'no'}", *options, f"model.weights={trained_tagger / 'hf'}", "model.typed=false"
        )


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
def test_what_cannot_be_trained_is_explained_in_five_lines(
    more: list[str], words: str, tmp_path: Path, tagger_options: list[str]
) -> None:
    with pytest.raises(Exception) as caught:  # Hydra wraps what its objects raise
        train_here(f"run_dir={tmp_path / 'run'}", *tagger_options, *more)
    told = explain(caught.value) or ""
    assert told.startswith(words) and "hint: " in told and len(told.splitlines()) <= 5


SPANS = ["benchmark=ragtruth", "benchmark.num_rows=60"]


def test_another_tools_spans_are_scored(tmp_path: Path) -> None:
    gold = answers()
    rows = [
        {"id": e.id, "label": e.label, "spans": [{"start": s.start, "end": s.end, "label": s.label} for s in e.spans]}
        for e in gold.values()
    ]
    file = tmp_path / "perfect.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    evaluate_here(*SPANS, f"predictions={file}", f"run_dir={tmp_path / 'run'}")
    found = metrics_of(tmp_path / "run")
    assert found["test/embedded-ragtruth/char_f1"]["value"] == found["test/embedded-ragtruth/response_f1"]["value"] == 1
    one = next(e for e in gold.values() if e.spans)
    rows[list(gold).index(one.id)]["spans"] = [{"start": 0, "end": len(one.response) + 1, "label": "hallucination"}]
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match="beyond the response") as caught:
        evaluate_here(*SPANS, f"predictions={file}", f"run_dir={tmp_path / 'bad'}")
    assert one.id in str(caught.value) and len((explain(caught.value) or "").splitlines()) <= 5
    with pytest.raises(UserError):
        evaluate_here(*SPANS, f"predictions={file}", f"html={tmp_path / 'bad.html'}", f"run_dir={tmp_path / 'bad'}")
    assert not (tmp_path / "bad.html").exists()
