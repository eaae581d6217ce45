"""Damages checkpoint files: each must be refused, or read as what was written."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import torch

from faithkit.files.run_folder import RunFolder
from faithkit.training.checkpoint_io import read_checkpoint, write_checkpoint
from faithkit.training.checkpoints import find_resume_point
from tests.faults.campaign import Campaign, Wrong
from tests.faults.mutations import mutate_bytes, mutate_value

PLAIN: dict[str, Any] = {
    "epoch": 0,
    "global_step": 7,
    "pytorch-lightning_version": "2.6",
    "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 1}}}},
    "callbacks": {},
    "optimizer_states": [],
    "lr_schedulers": [],
}


def whole() -> dict[str, Any]:
    """A checkpoint of a few tensors of several kinds."""
    weights = {"a": torch.arange(60.0), "b": torch.ones(3, 4, dtype=torch.bfloat16), "c": torch.arange(5)}
    return {**PLAIN, "state_dict": weights}


@cache
def with_checksum() -> bytes:
    """The file that a training writes."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder) / "file", whole())
        return (Path(folder) / "file").read_bytes()


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, torch.Tensor):
        return isinstance(found, torch.Tensor) and found.dtype == wanted.dtype and torch.equal(found, wanted)
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(name in found and same(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(same, found, wanted))
    return type(found) is type(wanted) and found == wanted


def _check(folder: Path, data: bytes) -> None:
    (folder / "file").write_bytes(data)
    if not same(read_checkpoint(folder / "file"), whole()):
        raise Wrong("other values were read")


def _damaged(rng: random.Random, folder: Path) -> None:
    _check(folder, mutate_bytes(with_checksum(), rng))


def _other_values(rng: random.Random, folder: Path) -> None:
    run = RunFolder(folder)
    changed = mutate_value(PLAIN, rng)
    write_checkpoint(run.last, {**changed, "state_dict": {}} if isinstance(changed, dict) else {"state_dict": changed})
    find_resume_point(run)


CAMPAIGNS = [
    Campaign("checkpoint (bytes)", _damaged),
    Campaign("checkpoint (values)", _other_values, share=0.5),
]
