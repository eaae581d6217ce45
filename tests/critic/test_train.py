"""A run from its command to its folder: what it leaves, what it can be resumed from, and that nothing is lost."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from critic.sequence.scorer import Critic
from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl, read_predictions, write_jsonl
from faithkit.training.checkpoints import read_checkpoint
from tests.critic.test_evidence import ALONE
from tests.running import ROOT, SMALL, assert_same_run, evaluate_here, metrics_of, run, train_here, train_in_two

PREDICTIONS = "predictions/embedded.jsonl"


def losses(folder: Path) -> dict[int, str]:
    with (folder / "csv" / "metrics.csv").open() as file:
        return {int(row["step"]): row["train/loss"] for row in csv.DictReader(file) if row.get("train/loss")}


def going_on_at(folder: Path) -> int:
    found = re.findall(r"resuming at step (\d+)", (folder / "train.log").read_text())
    return int(found[-1]) if found else 0


def test_a_run_leaves_the_folder_that_outside_programs_rely_on(trained: Path) -> None:
    for name in ("config.yaml", "checkpoints/best.ckpt", "checkpoints/last.ckpt", "train.log", "rejects.jsonl"):
        assert (trained / name).is_file(), name
    sidecar = json.loads((trained / "hf" / "faithkit.json").read_text())
    assert sidecar["kind"] == "critic" and sidecar["labels"] == ["faithful", "hallucinated"]
    assert {"order", "max_length"} <= sidecar["layout"].keys()
    assert {"threshold", "temperature", "aim"} <= sidecar["thresholds"].keys()
    assert sidecar["origin"]["data"]["fingerprints"] and sidecar["versions"]["torch"]
    results = json.loads((trained / "metrics.json").read_text())
    metric = results["metrics"]["test/embedded/macro_f1"]
    assert metric["low"] <= metric["value"] <= metric["high"] and metric["n"] == 60
    assert "ece_after" in results["meta"]["calibration"]
    rows = list(read_jsonl(trained / PREDICTIONS))
    assert len(rows) == 60 and all(list(row)[:5] == ["id", "label", "score", "spans", "text"] for row in rows)
    assert all(row["gold"] and row["group"] and row["knowledge"] and row["response"] for row in rows)


def test_evaluating_the_run_repeats_its_own_test_figures(trained: Path, tmp_path: Path) -> None:
    line = ("benchmark=embedded", "benchmark.options.num_test=60")
    evaluate_here(*line, f"checkpoint={trained}", f"run_dir={tmp_path / 'a'}")
    evaluate_here(*line, f"predictions={tmp_path / 'a' / PREDICTIONS}", f"run_dir={tmp_path / 'b'}")
    values = [metrics_of(run)["test/embedded/macro_f1"]["value"] for run in (trained, tmp_path / "a", tmp_path / "b")]
    assert values[1] == pytest.approx(values[0], abs=1e-9) and values[2] == values[1]


@pytest.fixture(scope="module")
def options(tiny_bert: Path) -> list[str]:
    return [f"model.weights={tiny_bert}", "model.num_epochs=3", "callbacks.log_every_num_steps=1", *SMALL]


@pytest.fixture(scope="module")
def whole(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    train_here(f"run_dir={folder}", *options)
    return folder


@pytest.mark.slow
def test_a_kill_behind_the_end_trains_nothing_again(
    whole: Path, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, results = tmp_path / "run", json.loads((whole / "metrics.json").read_text())["metrics"]

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("faithkit.reports.write_reports.write_run_results", killed)
        train_here(f"run_dir={folder}", *options, "checkpoints=best")
    sizes = {path.name: path.stat().st_size for path in (folder / "checkpoints").iterdir()}
    kept = sum(sizes.values()) + (folder / "hf" / "model.safetensors").stat().st_size
    assert sizes.keys() == {"best.ckpt", "last.ckpt"} and kept < 3.2 * sizes["best.ckpt"]
    assert (whole / "checkpoints" / "last.ckpt").stat().st_size > 2 * sizes["last.ckpt"], "with moments"
    before = losses(folder)
    train_here(f"resume={folder}")
    assert going_on_at(folder) == max(before) + 1 and losses(folder) == before == losses(whole)
    assert json.loads((folder / "metrics.json").read_text())["metrics"] == results


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    last = folder / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:5000])
    train_here(f"resume={folder}")
    log = (folder / "train.log").read_text()
    assert "last.ckpt: the checkpoint is cut short or damaged" in log and "previous.ckpt" in log
    assert_same_run(folder, whole)
    for name in ("last.ckpt", "previous.ckpt"):
        last.with_name(name).write_bytes(b"")
    with pytest.raises(UserError, match="cut short") as refused:
        train_here(f"resume={folder}")
    assert refused.value.hint


@pytest.mark.parametrize(
    ("trainer", "more"),
    [
        ("ddp", []),
        pytest.param("fsdp", ["model.support_weight=1"], marks=pytest.mark.slow),
        pytest.param("fsdp", ALONE, marks=pytest.mark.slow, id="fsdp-tokens"),
    ],
)
def test_two_processes_step_as_one(trainer: str, more: Sequence[str], options: list[str], tmp_path: Path) -> None:
    plain = [*(option for option in options if not option.startswith("trainer")), *more]
    plain += ["model.dropout=0", "model.num_epochs=1", "logger=csv", "data.num_train=64", "data.num_test=31"]
    train_here(f"run_dir={tmp_path / 'one'}", *plain, "trainer=cpu")
    train_in_two(trainer, tmp_path / "two", *plain)
    one, both = (read_predictions(tmp_path / name / PREDICTIONS) for name in ("one", "two"))
    assert list(one) == list(both), "no example lost or doubled"
    assert all(both[i].score == pytest.approx(found.score, abs=1e-4) for i, found in one.items())


def test_rejected_rows_are_written_beside_the_run(options: list[str], tmp_path: Path) -> None:
    rows = [
        {"gold_label": label, "sentence1": f"river {i}", "sentence2": "it is long", "pairID": f"p{i}"}
        for i, label in enumerate(["entailment", "contradiction"] * 40)
    ]
    rows[7]["gold_label"] = "perhaps"
    file = tmp_path / "snli_1.0_train.jsonl"
    write_jsonl(file, rows)
    plain = [option for option in options if not option.startswith("data.")]
    arguments = ["data=snli", f"data.path={file}", "data.validation_fraction=0.3", "data.test_fraction=0.3", *plain]
    with pytest.raises(UserError, match=r"gold_label(.|\n)*line 8"):
        train_here(f"run_dir={tmp_path / 'stops'}", *arguments)
    train_here(f"run_dir={tmp_path / 'skips'}", "data.on_bad_row=skip", *arguments)
    (reject,) = read_jsonl(tmp_path / "skips" / "rejects.jsonl")
    assert reject["line"] == 8 and "perhaps" in reject["problem"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keep", "left"), [("none", set()), ("best", {"best.ckpt"}), ("all", {"best.ckpt", "last.ckpt", "previous.ckpt"})]
)
def test_an_ended_training_keeps_what_is_wanted(tiny_bert: Path, tmp_path: Path, keep: str, left: set[str]) -> None:
    folder = tmp_path / "run"
    train_here(*SMALL, f"model.weights={tiny_bert}", f"run_dir={folder}", f"checkpoints={keep}")
    assert {path.name for path in (folder / "checkpoints").iterdir()} == left
    before = (folder / "metrics.json").read_bytes()
    train_here(f"resume={folder}")
    if keep != "all":
        assert "is finished and has no checkpoint to resume from" in (folder / "train.log").read_text()
        assert (folder / "metrics.json").read_bytes() == before
    assert Critic.load(str(folder)).score(knowledge="A.", response="B.").label in ("faithful", "hallucinated")


TWO = ("trainer.strategy=fsdp", "trainer.accelerator=cpu", "trainer.devices=2")
ONE = ("trainer.strategy=auto", "trainer.devices=1")
# The first process stops itself: both then write a checkpoint of that step.
STOPPED = """
import os, runpy, signal, sys
from critic.sequence.module import CriticModule
step, last = CriticModule.training_step, int(sys.argv[1])
def stopping(self, batch, batch_idx):
    if batch_idx == last:
        os.kill(os.getpid(), signal.SIGTERM)
    return step(self, batch, batch_idx)
CriticModule.training_step = stopping
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def stop_at(step: int, *options: str) -> str:
    """Runs a training that its first process stops at this step; returns its output."""
    script = [sys.executable, "-W", "ignore", "-c", STOPPED, str(step), str(ROOT / "train.py"), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(script, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 130 and "resume=" in done.stderr, done.stderr
    return done.stderr


@pytest.mark.slow
def test_two_processes_then_one_then_two_take_the_steps_of_two(tiny_bert: Path, tmp_path: Path) -> None:
    plain = [option for option in SMALL if not option.startswith("trainer=")]
    often = ("model.num_epochs=2", "callbacks.save_every_seconds=0", "callbacks.log_every_num_steps=1", "logger=csv")
    options = [*plain, *often, f"model.weights={tiny_bert}", "model.dropout=0", "trainer=cpu", *TWO]
    whole, folder = tmp_path / "whole", tmp_path / "run"
    done = run("train.py", *options, f"run_dir={whole}")
    assert done.returncode == 0, done.stderr
    stop_at(3, *options, f"run_dir={folder}")
    assert (folder / "checkpoints" / "last.ckpt").is_dir(), "two processes write a file each"
    assert "resuming at step 4" in stop_at(6, f"resume={folder}", *ONE)
    assert (folder / "checkpoints" / "last.ckpt").is_file(), "one process writes one file"
    done = run("train.py", f"resume={folder}", *TWO)
    assert done.returncode == 0 and "resuming at step 7" in done.stderr, done.stderr
    ours, theirs = (read_checkpoint(run / "checkpoints" / "last.ckpt") for run in (folder, whole))
    # A key's bias has no gradient but rounding, which Adam divides by itself.
    weights = {name: value for name, value in theirs["state_dict"].items() if "key.bias" not in name}
    pairs = [(ours["state_dict"][name], value) for name, value in weights.items()]
    moments, others = (checkpoint["optimizer_states"][0]["state"] for checkpoint in (ours, theirs))
    pairs += [(moments[name][key], value) for name in others for key, value in others[name].items()]
    for found, wanted in pairs:  # one process sums in another order
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)
    assert losses(folder).keys() == losses(whole).keys()
    scores, wanted = (read_predictions(str(run / "predictions" / "embedded.jsonl")) for run in (folder, whole))
    assert all(wanted[i].score == pytest.approx(row.score, abs=1e-4) for i, row in scores.items())
