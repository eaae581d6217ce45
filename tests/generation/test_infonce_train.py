"""Training with negatives from its command to its folder: it learns, resumes, and is the same on more processes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.generation.test_train import assert_metrics_agree
from tests.running import SMALL_GENERATOR, curve, state, train_here, train_in_two

OBJECTIVE = ["objective=infonce", "data.negatives.kinds=[original,verbatim,other]", "objective.num_negatives=2"]


@pytest.fixture(scope="module")
def options(language_models: dict[str, Path]) -> dict[str, list[str]]:
    plain = ["callbacks.log_every_num_steps=1", *SMALL_GENERATOR, *OBJECTIVE]
    models = {"t5": "t5", "gpt2": "gpt2", "llama": "gpt2"}  # by family: places added, and places turned
    return {w: [f"model={m}", f"model.weights={language_models[w]}", *plain] for w, m in models.items()}


@pytest.mark.parametrize("model", ["t5", pytest.param("llama", marks=pytest.mark.slow)])
def test_a_model_learns_to_write_and_to_tell_apart(model: str, options: dict[str, list[str]], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    given = ["model.num_epochs=6", "objective.weight=1", "optimizer.lr=5e-3", "data.num_rows=16"]
    train_here(f"run_dir={folder}", *options[model], *given, "model.validations_per_epoch=0.2")
    losses, contrast = curve(folder), curve(folder, "train/contrast")
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) and np.mean(contrast[-3:]) < np.mean(contrast[:3])
    assert len(curve(folder, "train/contrast_accuracy")) == 12
    counts = json.loads((folder / "metrics.json").read_text())["meta"]["data"]["counts"]["embedded-faithdial/train"]
    assert counts["negatives: verbatim"] > 0 and counts["negatives: original"] > 0
    weights = load_file(folder / "hf" / "model.safetensors")
    assert weights and not any("projection" in name for name in weights), "what helped in training stays behind"


@pytest.mark.slow
@pytest.mark.parametrize("in_batch", ["true", "all"])
@pytest.mark.parametrize("trainer", ["ddp", "fsdp"])
@pytest.mark.parametrize("model", ["t5", "gpt2", "llama"])
def test_two_processes_take_the_steps_of_one(
    model: str, trainer: str, in_batch: str, options: dict[str, list[str]], tmp_path: Path
) -> None:
    plain = [option for option in options[model] if option != "trainer=cpu"]
    plain += [f"objective.in_batch={in_batch}", "objective.weight=1", "data.num_rows=37"]
    train_here(f"run_dir={tmp_path / 'one'}", *plain, "trainer=cpu")
    train_in_two(trainer, tmp_path / "two", *plain)
    assert_metrics_agree(tmp_path / "one", tmp_path / "two")
    for name in ("train/contrast", "train/contrast_accuracy"):
        assert np.isfinite(curve(tmp_path / "two", name)).all()
    projections = [state(tmp_path / name)["objective.projection.weight"] for name in ("one", "two")]
    torch.testing.assert_close(*projections, atol=1e-4, rtol=0)
