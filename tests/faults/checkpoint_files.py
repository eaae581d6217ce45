"""A checkpoint of a few tensors, its file, and the comparison of what is read with it."""

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

from faithkit.training.checkpoint_io import write_checkpoint

PLAIN: dict[str, Any] = {
    **{"epoch": 0, "global_step": 7, "pytorch-lightning_version": "2.6", "callbacks": {}},
    "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 1}}}},
    **{"optimizer_states": [], "lr_schedulers": []},
}


def example_checkpoint(step: int = 7) -> dict[str, Any]:
    """Makes a checkpoint with tensors of several kinds."""
    weights = {"a": torch.full((60,), float(step)), "b": torch.ones(3, 4, dtype=torch.bfloat16), "c": torch.arange(5)}
    return {**PLAIN, "global_step": step, "state_dict": weights}


@cache
def checkpoint_bytes() -> bytes:
    """Gives the file that a training writes."""
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder) / "file", example_checkpoint())
        return (Path(folder) / "file").read_bytes()


def is_same(found: Any, expected: Any) -> bool:
    """Compares plain values and tensors; `found` may have more keys."""
    if isinstance(expected, torch.Tensor):
        return isinstance(found, torch.Tensor) and found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(key in found and is_same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(is_same, found, expected))
    return type(found) is type(expected) and found == expected
