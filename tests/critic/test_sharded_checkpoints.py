"""A training under `trainer=fsdp` resumes in fewer or more processes."""

import os
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


def stop_at(step: int, *options: str) -> str:
    """Runs a training whose first process stops it at this step; returns what it says."""
    script = [sys.executable, "-W", "ignore", "-c", STOPPED, str(step), str(ROOT / "train.py"), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(script, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 130 and "resume=" in done.stderr, done.stderr
    return done.stderr


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
