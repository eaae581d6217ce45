"""Reads and writes the checkpoints of a training: the one to resume from and the best one, after verifying both."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from faithkit.errors import UserError
from faithkit.files.atomic import delete
from faithkit.files.run_folder import RunFolder
from faithkit.settings.types import KEPT_CHECKPOINTS
from faithkit.training.checkpoint_io import DamagedCheckpoint, read_file, verify_file

log = logging.getLogger("faithkit")
# The parts that Lightning restores a training from, with their types.
PARTS: dict[str, Any] = {
    "epoch": int,
    "global_step": int,
    "pytorch-lightning_version": str,
    "loops": dict,
    "callbacks": dict,
    "optimizer_states": list,
    "lr_schedulers": list,
}


class ResumePoint(NamedTuple):
    """A verified checkpoint to resume from, and its step.

    Args:
        problem: The reason where it is not last.ckpt.
    """

    path: Path
    step: int
    problem: str | None = None


def read_checkpoint(path: Path, *, map_location: Any = "cpu", mmap: bool = False) -> dict[str, Any]:
    """Reads a checkpoint, a file or a sharded folder, as tensors and plain values; nothing in it is executed.

    Raises:
        DamagedCheckpoint: It is damaged, or not a checkpoint.
        UserError: It cannot be read.
        FileNotFoundError: It does not exist.
    """
    if not path.is_dir():
        return read_file(path, map_location=map_location, mmap=mmap)
    from faithkit.training.sharded_checkpoints import read_sharded

    return read_sharded(path, map_location=map_location)


def find_resume_point(run: RunFolder) -> ResumePoint | None:
    """Finds the newest undamaged checkpoint, last.ckpt or else previous.ckpt, and logs its step; None without one.

    Raises:
        UserError: All checkpoints are damaged, or best.ckpt is damaged or missing.
    """
    error: DamagedCheckpoint | None = None
    for path in (run.last, run.previous):
        try:
            checkpoint = read_checkpoint(path, map_location="meta", mmap=True)
            if missing := [name for name, kind in PARTS.items() if not isinstance(checkpoint.get(name), kind)]:
                raise DamagedCheckpoint(path, f"it has no {', '.join(missing)}")
            break
        except DamagedCheckpoint as found:
            error = error or found
        except FileNotFoundError:
            continue
    else:
        if error:
            raise error
        return None
    try:
        verify_file(run.best)  # now, and not after hours of training
    except FileNotFoundError:  # before the first validation
        states = [state for key, state in checkpoint["callbacks"].items() if "Checkpoint" in str(key)]
        if any(isinstance(state, dict) and state.get("best_model_path") for state in states):
            raise DamagedCheckpoint(run.best, "it is missing") from None
    point = ResumePoint(path, checkpoint["global_step"])
    if path != run.last:
        point = point._replace(problem=error.problem if error else "it is missing")
        log.warning("%s: %s; resuming from the previous one, %s", run.last, point.problem, path.name)
    log.info("resuming at step %d", point.step)
    return point


def check_fits(path: Path, module: Any) -> None:
    """Compares the names and shapes of a checkpoint's weights with those of a module.

    Raises:
        UserError: They differ.
    """
    stored = read_checkpoint(path, map_location="meta", mmap=True)["state_dict"]
    adapters = getattr(module, "adapters", None)
    saved = module.state_dict() if adapters is None else adapters.select(module.state_dict())
    _compare(stored, saved, path)


def load_weights(model: Any, state: Mapping[str, Any], path: Path) -> None:
    """Loads a checkpoint's weights into a model.

    Raises:
        UserError: Names or shapes differ.
    """
    _compare(state, model.state_dict(), path)
    model.load_state_dict(state)


def _compare(stored: Mapping[str, Any], expected: Mapping[str, Any], path: Path) -> None:
    different = [
        name
        for name in sorted(stored.keys() | expected.keys(), key=str)
        if getattr(stored.get(name), "shape", None) != getattr(expected.get(name), "shape", None)
    ]
    if different:
        count, first = len(different), different[0]
        problem = f"not the weights of this model: {count} tensors are missing or have other shapes ({first}, ...)"
        hint = f"resume with the configuration of the first run, or delete {path.parent} and train again"
        raise UserError(problem, place=str(path), hint=hint)


def drop_checkpoints(run: RunFolder, keep: str) -> None:
    """Deletes the checkpoints of a finished training: hf/ holds its best model.

    Args:
        keep: `none`, `best` (best.ckpt, which an export is compared with), or `all`.
    """
    none, best, every = KEPT_CHECKPOINTS
    dropped = {every: (), best: (run.last, run.previous), none: (run.last, run.previous, run.best)}[keep]
    for path in dropped:
        delete(path)


def best_weights(run: RunFolder) -> dict[str, Any]:
    """Reads the training module's weights from the best checkpoint.

    Raises:
        UserError: It is damaged.
        FileNotFoundError: It does not exist.
    """
    return read_checkpoint(run.best, mmap=True)["state_dict"]


def load_best(module: Any, run: RunFolder, kind: Any, *, empty: bool = False) -> Any:
    """Loads the best checkpoint's weights into the module's model, and returns that model.

    If training has sharded the module's model, the weights go into a new, unsharded model. Adapters are merged.

    Args:
        kind: The Auto class of the model.
        empty: Builds a new model without weights, which another process will send.
    """
    from faithkit.weights.load import build_empty

    if empty:
        return build_empty(kind, module.model.config)
    try:
        state = best_weights(run)
    except FileNotFoundError as error:
        hint = "raise model.num_epochs: no validation was reached"
        raise UserError("no best checkpoint was written", place=str(run.best), hint=hint) from error
    is_sharded = is_in_shards(module)
    if (adapters := getattr(module, "adapters", None)) is not None:
        return adapters.merged(adapters.build() if is_sharded else module.model, model_state(state), run.best)
    if not is_sharded:
        load_weights(module, state, run.best)
        return module.model
    whole = kind.from_config(module.model.config)
    load_weights(whole, model_state(state), run.best)
    return whole


def is_in_shards(module: Any) -> bool:
    """Reports whether training has sharded a module's model."""
    from torch.distributed.tensor import DTensor

    return any(isinstance(parameter, DTensor) for parameter in module.parameters())


def model_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the model's weights from a training module's checkpoint, without those of auxiliary heads."""
    return {name.removeprefix("model."): value for name, value in state.items() if name.startswith("model.")}
