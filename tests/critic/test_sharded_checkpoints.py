"""A training under `trainer=fsdp` resumes in fewer or more processes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from faithkit.files.jsonl import read_predictions
from faithkit.training.checkpoints import read_checkpoint
from tests.critic.test_train import losses
from tests.running import ROOT, SMALL, run

pytestmark = pytest.mark.slow
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


@pytest.fixture(scope="module")
def options(tiny_bert: Path) -> list[str]:
    plain = [option for option in SMALL if not option.startswith("trainer=")]
    often = ("model.num_epochs=2", "callbacks.save_every_seconds=0", "callbacks.log_every_num_steps=1", "logger=csv")
    return [*plain, *often, f"model.weights={tiny_bert}", "model.dropout=0", "trainer=cpu", *TWO]


@pytest.fixture(scope="module")
def whole(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of two processes in one go."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    done = run("train.py", *options, f"run_dir={folder}")
    assert done.returncode == 0, done.stderr
    assert (folder / "checkpoints" / "last.ckpt").is_dir() and (folder / "checkpoints" / "best.ckpt").is_file()
    return folder


@pytest.fixture(scope="module")
def stopped(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, stopped at its fourth step."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    done = changed(STOPPED, "3", *options, f"run_dir={folder}")
    _, errors = done.communicate(timeout=240)
    assert done.returncode == 130 and "resume=" in errors, errors
    return folder


def changed(script: str, argument: str, *options: str) -> subprocess.Popen[str]:
    """Starts a training whose first process behaves otherwise, and which ends with its group of processes."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, argument, str(ROOT / "train.py"), *options],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def assert_same(first: Path, second: Path, tolerance: float = 0) -> None:
    """Compares the weights, moments, steps and predictions of two trainings."""
    ours, theirs = (read_checkpoint(folder / "checkpoints" / "last.ckpt") for folder in (first, second))
    # A key's bias has no gradient but rounding, which Adam divides by itself: only equal sums give equal steps.
    weights = {name: value for name, value in theirs["state_dict"].items() if not (tolerance and "key.bias" in name)}
    pairs = [(ours["state_dict"][name], value) for name, value in weights.items()]
    state, other = (checkpoint["optimizer_states"][0]["state"] for checkpoint in (ours, theirs))
    assert state.keys() == other.keys()
    pairs += [(state[name][moment], value) for name in other for moment, value in other[name].items()]
    for found, wanted in pairs:
        torch.testing.assert_close(found, wanted, atol=tolerance, rtol=0)
    assert losses(first).keys() == losses(second).keys()
    if not tolerance:  # the first process logs the loss of its own rows
        assert losses(first) == losses(second)
    scores, others = (read_predictions(str(folder / "predictions" / "embedded.jsonl")) for folder in (first, second))
    assert all(others[i].score == pytest.approx(row.score, abs=max(tolerance, 1e-9)) for i, row in scores.items())


def test_two_processes_then_one_then_two_take_the_steps_of_two(stopped: Path, whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(stopped, tmp_path / "run")
    one = changed(STOPPED, "6", f"resume={folder}", *ONE)
    _, errors = one.communicate(timeout=240)
    assert one.returncode == 130 and "resuming at step 4" in errors, errors
    assert (folder / "checkpoints" / "last.ckpt").is_file(), "one process writes one file"
    done = run("train.py", f"resume={folder}", *TWO)
    assert done.returncode == 0 and "resuming at step 7" in done.stderr, done.stderr
    assert (folder / "checkpoints" / "last.ckpt").is_dir()
    # One process sums in another order; where a gradient is almost 0, Adam shows that in the weight.
    assert_same(folder, whole, 1e-4)
