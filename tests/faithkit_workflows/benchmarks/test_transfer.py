"""The transfer table: nothing of a test set chooses the checkpoint or the threshold that the table reports."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from data_modules.embedded.layouts import written_layout
from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl
from faithkit.pages.page_tables import render_text
from faithkit.statistics.metric import Metric
from faithkit_workflows.benchmarks.transfer import check_trainings, transfer_table
from tests.running import ROOT, SMALL, command, evaluate_here, metrics_of, plain_config, run


def metric(value):
    return Metric(value=value, low=value - 0.02, high=value + 0.02, n=1864)


def test_our_figures_stand_under_the_papers_with_what_they_were_taken_on():
    found = {"accuracy": metric(0.703), "macro_f1": metric(0.61), "majority_accuracy": metric(0.55), "f1": metric(0.4)}
    cells = {("faithcritic", tested_on): found for tested_on in ("begin", "faithcritic", "snli")}
    sources = {"begin": "BEGIN 2022 [red]", "faithcritic": "embedded corpus"}
    text = render_text(transfer_table(cells, sources=sources))
    assert re.search(r"74\.7† \| +71\.6† \| +86\.5 \|", text), "the paper's"
    assert re.search(r"ours +\| +- \| +70\.3† \[68\.3, 72\.3\] \| +70\.3 \[68\.3, 72\.3\] \|", text)
    for name, value in (("macro-F1", "61.0 [59.0, 63.0]"), ("majority", "55.0 [53.0, 57.0]"), ("test rows", "1,864")):
        assert re.search(rf"{name} +\| +- \| +{re.escape(value)}", text)
    assert re.search(r"tested on +\| +unknown \| +BEGIN 2022 \[red\] \| +embedded corpus \|", text)


@pytest.fixture(scope="module")
def mnli() -> str:
    """A folder with MNLI's training and matched validation files."""
    return written_layout("mnli", {"train": 150, "validation": 60})


ALONE = (
    "benchmark=transfer",
    *(f"~benchmark.train.{name}" for name in ("decode", "dnli", "faithcritic")),
    *(f"~benchmark.test.{name}" for name in ("begin", "faithcritic")),
)


def run_transfer(folder: Path, *options: str) -> None:
    evaluate_here(*ALONE, f"run_dir={folder}", *options)


def test_the_example_in_the_hint_can_be_typed() -> None:
    def config(*overrides: str) -> Any:
        return plain_config("evaluate", "benchmark=transfer", *overrides)

    with pytest.raises(UserError, match="not a setting") as refused:
        check_trainings(config("benchmark.overrides=[wrong]"))
    example = str(refused.value.hint).partition("for example ")[2]
    typed = config(f"benchmark.overrides={example}")
    check_trainings(typed)
    assert len(typed["benchmark"]["overrides"]) == 2


@pytest.fixture(scope="module")
def training(mnli: str, tiny_bert: Path) -> list[str]:
    """The options of a transfer that trains one small critic."""
    small = [option for option in SMALL if not option.startswith("data.")]
    overrides = [f"model.weights={tiny_bert}", "logger=none", "callbacks.num_examples=0", "model.num_epochs=1", *small]
    quoted = ",".join(f"'{override}'" for override in [*overrides, "callbacks.save_every_seconds=0"])
    return [*(f"benchmark.{part}.mnli.path={mnli}" for part in ("train", "test")), f"benchmark.overrides=[{quoted}]"]


@pytest.fixture(scope="module")
def whole(training: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("transfer") / "run"
    run_transfer(folder, *training)
    return folder


def test_the_rows_that_are_reported_choose_neither_checkpoint_nor_threshold(whole: Path) -> None:
    results = json.loads((whole / "trained-on-mnli" / "metrics.json").read_text())["meta"]
    sizes = results["data"]["sizes"]
    assert set(results["data"]["fingerprints"]) == {"mnli/train"}, "only the training file is read"
    assert 0 < sizes["validation"]["mnli"] < sizes["train"]["mnli"]
    threshold = results["calibration"]["threshold"]
    assert threshold["aim"] == "argmax" and threshold["value"] == 0.5
    assert json.loads((whole / "metrics.json").read_text())["metrics"]["test/mnli/mnli_accuracy"]["n"] > 0


def test_a_given_critic_calls_by_its_threshold_and_the_caption_says_what_chose_it(
    whole: Path, mnli: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = json.loads((trained / "hf" / "faithkit.json").read_text())["thresholds"]["threshold"]
    argmax = "the more probable class (0.5), as in the paper's release"
    official = "chosen on the validation split that is tested"  # as the training of all critics read it before
    cases = [
        (whole / "trained-on-mnli", "argmax", 0.5, ("chosen on 5% of the groups of its train split", argmax)),
        (trained, "argmax", 0.5, (official, argmax)),
        (trained, "null", stored, (official, "threshold: chosen for each critic")),
    ]
    for number, (critic, aim, threshold, captions) in enumerate(cases):
        options = [f"benchmark.test.mnli.path={mnli}", f"benchmark.train.mnli.checkpoint={critic}"]
        run_transfer(tmp_path / str(number), *options, f"benchmark.threshold_aim={aim}")
        shown = " ".join(capsys.readouterr().out.split())
        assert all(caption in shown for caption in captions)
        for row in read_jsonl(tmp_path / str(number) / "predictions" / "mnli-by-mnli.jsonl"):
            assert row["label"] == ("hallucinated" if row["score"] >= threshold else "faithful")


@pytest.mark.slow
def test_a_transfer_interrupted_in_a_training_goes_on_to_the_same_table(whole, training, tmp_path) -> None:
    folder = tmp_path / "run"
    arguments = command("evaluate.py", *ALONE, f"run_dir={folder}", "num_resamples=20", *training)
    process = subprocess.Popen(arguments, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    checkpoint, deadline = folder / "trained-on-mnli" / "checkpoints" / "last.ckpt", time.monotonic() + 600
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=600)[1]
    assert process.returncode == 130 and f"resume={folder}" in said and "Traceback" not in said, said
    assert not (folder / "metrics.json").exists() and not (folder / "trained-on-mnli" / "metrics.json").exists()
    again = run("evaluate.py", f"resume={folder}", timeout=600)
    assert again.returncode == 0, again.stderr
    assert metrics_of(folder) == metrics_of(whole)
