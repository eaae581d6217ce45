"""A generator's run from its command to its folder: what it leaves, resumes and refuses, in one stage or two."""

import json
import re
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_modules.encoding.sequence_layout import KNOWLEDGE
from faithkit.cli import explain
from faithkit.errors import UserError
from faithkit.records import Turn
from generation import Generator
from generation.export import export
from generation.task import GeneratorModule
from tests.data_modules.examples import example
from tests.running import (
    SMALL_GENERATOR,
    assert_same_run,
    break_at,
    curve,
    metrics_of,
    resume_here,
    state,
    train_here,
    train_in_two,
)
from tests.tiny import write_language_model

INFONCE = ["objective=infonce", "data.negatives=null", "model.max_response_length=90"]
TRUNCATION = ["objective=loss_truncation", "objective.window=16", "objective.recompute_every=8"]


def assert_metrics_agree(first: Path, second: Path) -> None:
    one, both = metrics_of(first), metrics_of(second)
    assert one.keys() == both.keys()
    for name in one:
        assert both[name]["value"] == pytest.approx(one[name]["value"], rel=1e-4), name


@pytest.fixture(scope="module")
def options(language_models: dict[str, Path]) -> dict[str, list[str]]:
    """The options of a training of seconds of each model."""
    weights = {"t5": "t5", "gpt2": "llama"}
    plain = ["callbacks.log_every_num_steps=1", *SMALL_GENERATOR]
    return {m: [f"model={m}", f"model.weights={language_models[w]}", *plain] for m, w in weights.items()}


@pytest.fixture(scope="module")
def trained(options: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of finished runs."""
    folder = tmp_path_factory.mktemp("generators")
    for model, given in options.items():
        train_here(f"run_dir={folder / model}", *given, "callbacks.num_examples=2", "model.num_epochs=3")
    return {model: folder / model for model in options}


@pytest.mark.parametrize("model", ["t5", "gpt2"])
def test_a_run_leaves_the_folder_that_outside_programs_rely_on(model: str, trained: dict[str, Path]) -> None:
    folder = trained[model]
    for name in ("config.yaml", "checkpoints/best.ckpt", "checkpoints/last.ckpt", "train.log", "rejects.jsonl"):
        assert (folder / name).is_file(), name
    for name in ("perplexity", "loss", "token_accuracy"):
        metric = metrics_of(folder)[f"test/embedded-faithdial/{name}"]
        assert metric["low"] <= metric["value"] <= metric["high"] and metric["n"] == 40
    sidecar = json.loads((folder / "hf" / "faithkit.json").read_text())
    assert (sidecar["kind"], sidecar["labels"]) == ("generator", [])
    kind = {"t5": "seq2seq", "gpt2": "causal"}[model]
    layout = {"kind": kind, "architecture": kind, "max_length": 320, "max_response_length": 90, "max_history": None}
    assert layout.items() <= sidecar["layout"].items() and sidecar["layout"]["markers"]["knowledge"] == KNOWLEDGE
    assert sidecar["origin"]["data"]["fingerprints"] and sidecar["versions"]["torch"]
    losses = curve(folder)
    assert len(losses) == 15 and np.mean(losses[-3:]) < np.mean(losses[:3])
    found = curve(folder, "validation/embedded-faithdial/perplexity")
    assert found[-1] < found[0] and curve(folder, "validation/embedded-faithdial/token_accuracy")


@pytest.mark.parametrize("model", ["t5", "gpt2"])
def test_an_export_is_the_same_in_plain_transformers(model: str, trained: dict[str, Path], tmp_path: Path) -> None:
    report = export(str(trained[model]), str(tmp_path / "out"))
    assert report.difference <= 1e-5 and report.num_logits > 1000
    card = (tmp_path / "out" / "README.md").read_text()
    assert all(part in card for part in ("faithdial (40 examples)", "perplexity", KNOWLEDGE)) and "Labels" not in card
    code = card.split("```python\n")[1].split("```")[0].replace("FOLDER", repr(str(tmp_path / "out")))
    scope: dict[str, Any] = {"knowledge": "the river is long", "question": "is it"}
    exec(code, scope)  # noqa: S102 - the card's own lines
    encoder = Generator.load(tmp_path / "out").encoder
    asked = example(knowledge=scope["knowledge"], history=(Turn(speaker="seeker", text=scope["question"]),))
    assert scope["inputs"].input_ids[0].tolist() == encoder.contexts([asked], Counter()).row(0).tolist()


def test_padded_training_takes_the_steps_of_packed_training_also_without_fast_code(
    options: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for packed in ("true", "false"):
        train_here(f"run_dir={tmp_path / packed}", *options["gpt2"], f"model.packed={packed}")
    monkeypatch.setenv("FAITHKIT_FAST", "0")
    train_here(f"run_dir={tmp_path / 'plain'}", *options["gpt2"], "model.packed=true")
    ours, theirs, plain = (curve(tmp_path / name) for name in ("true", "false", "plain"))
    assert len(ours) == 5 and ours == pytest.approx(theirs, abs=1e-4) and ours == pytest.approx(plain, abs=1e-4)


def test_a_broken_run_resumes_to_the_same_weights_and_window(options: dict[str, list[str]], tmp_path: Path) -> None:
    given = [*options["t5"], *TRUNCATION, "model.dropout=0.1", "callbacks.save_every_seconds=0"]
    train_here(f"run_dir={tmp_path / 'whole'}", *given)
    break_at(3, GeneratorModule, tmp_path / "run", *given)
    resume_here(tmp_path / "run")
    assert "resuming at step 3" in (tmp_path / "run" / "train.log").read_text()
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert state(tmp_path / "run")["objective.seen"] == 40
    assert max(curve(tmp_path / "run", "train/dropped")) > 0.2


@pytest.mark.slow
def test_two_stages_are_one_run_that_resumes_wherever_it_broke(options: dict[str, list[str]], tmp_path: Path) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    given = [*options["t5"], "data=wow_then_faithdial", "data.num_rows=16", "callbacks.save_every_seconds=0"]
    train_here(f"run_dir={whole}", *given)
    first, again = whole / "stage1-wow", run / "stage1-wow"
    assert "test/embedded-wow/perplexity" in metrics_of(first) and (first / "hf" / "faithkit.json").exists()
    assert set(metrics_of(whole)) >= {"test/embedded-faithdial/perplexity", "test/embedded-faithdial/loss"}
    assert len(curve(first)) == len(curve(whole)) == 2
    begun = curve(whole, "validation/embedded-wow_then_faithdial/perplexity")[0]
    assert begun < np.exp(curve(first)[0]), "the second stage begins with the model of the first"
    break_at(1, GeneratorModule, run, *given)
    assert not (run / "checkpoints" / "last.ckpt").exists()
    resume_here(run)
    assert_same_run(again, first)
    assert_same_run(run, whole)
    (run / "metrics.json").unlink()
    before = (again / "train.log").read_text()
    resume_here(run)
    assert (again / "train.log").read_text() == before, "a finished stage is left alone"
    assert_same_run(run, whole)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "trainer"), [*product(("t5", "gpt2"), ("ddp", "fsdp")), ("doha", "fsdp")])
def test_two_processes_take_the_steps_of_one(
    model: str, trainer: str, options: dict[str, list[str]], tmp_path: Path
) -> None:
    if model == "doha":
        bart = write_language_model(tmp_path / "bart", "bart", num_places=512)
        options = {"doha": [*options["t5"], "model=doha", f"model.weights={bart}"]}
    plain = [option for option in options[model] if option != "trainer=cpu"]
    plain += [*TRUNCATION, "data.num_rows=37", "data=wow_then_faithdial", "callbacks.num_examples=2"]
    train_here(f"run_dir={tmp_path / 'one'}", *plain, "trainer=cpu")
    train_in_two(trainer, tmp_path / "two", *plain)
    for stage in (".", "stage1-wow"):
        assert_metrics_agree(tmp_path / "one" / stage, tmp_path / "two" / stage)
    answers = [re.findall(r"\| answer \| .*", (tmp_path / name / "report.md").read_text()) for name in ("one", "two")]
    assert len(answers[0]) == 2 and answers[0] == answers[1]
    windows = [state(tmp_path / name)["objective.recent"].sort()[0] for name in ("one", "two")]
    torch.testing.assert_close(*windows, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["model=critic", "objective=loss_truncation"], "loss_truncation does not work with model=critic"),
        (["model=t5", "model.weights={gpt2}"], "is not a seq2seq model"),
        (["model=gpt2", "model.weights={gpt2}", "model.max_length=600"], "512 places"),
        (["model=t5", "model.weights={t5}", "model.max_length=20"], "knowledge alone take"),
        (["model=t5", "model.weights={t5}", "objective=loss_truncation", "objective.drop_fraction=2"], "drop_fraction"),
        (["model=t5", "model.weights={t5}", *INFONCE, "model.max_length=400"], "no training example has negatives"),
        (["model=gpt2", "model.weights={gpt2}", *INFONCE, "model.packed=false"], "set model.packed=true"),
        (["model=gpt2", "model.weights={gpt2}", *INFONCE, "objective.query=encoder_mean"], "go with a causal model"),
    ],
)
def test_what_cannot_be_trained_is_explained_in_five_lines(
    given: list[str], problem: str, language_models: dict[str, Path], tmp_path: Path
) -> None:
    overrides = [option.format(**language_models) for option in given]
    with pytest.raises(Exception) as caught:
        train_here(f"run_dir={tmp_path / 'run'}", "data.num_rows=30", "trainer=cpu", "logger=none", *overrides)
    told = explain(caught.value)
    assert told is not None and problem in told and len(told.splitlines()) <= 5
    assert isinstance(caught.value, UserError) or isinstance(caught.value.__cause__, UserError)
