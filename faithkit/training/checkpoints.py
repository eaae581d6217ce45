"""Finds the checkpoint that a training goes on from, and loads the best one; both only if they are whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from faithkit.errors import UserError
from faithkit.files.atomic import delete
from faithkit.files.run_folder import RunFolder
from faithkit.settings.types import KEPT_CHECKPOINTS
from faithkit.training.checkpoint_io import DamagedCheckpoint, check_file, read_checkpoint

# What Lightning restores a training from, and its kinds.
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
    """A whole checkpoint of a training, and the step that it was written at.

    Args:
        problem: Why it is not last.ckpt, where it is not.
    """

    path: Path
    step: int
    problem: str | None = None


def find_resume_point(run: RunFolder) -> ResumePoint | None:
    """Finds the newest whole checkpoint: last.ckpt, else the one before it; None at the beginning.

    Raises:
        UserError: There are checkpoints and none is whole, or best.ckpt is not, or is missing.
    """
    error: DamagedCheckpoint | None = None
    for path in (run.last, run.previous):
        try:
            checkpoint = _read_last(path)
        except DamagedCheckpoint as found:
            error = error or found
        except FileNotFoundError:
            continue
        else:
            _check_best(run, checkpoint)  # now, and not after hours of training
            step = checkpoint["global_step"]
            return ResumePoint(path, step, None if path == run.last else error.problem if error else "it is missing")
    if error:
        raise error
    return None


def _check_best(run: RunFolder, checkpoint: Mapping[str, Any]) -> None:
    """Checks best.ckpt, which may be missing only as long as there was no validation."""
    try:
        check_file(run.best)
    except FileNotFoundError:
        states = [state for key, state in checkpoint["callbacks"].items() if str(key).startswith("ModelCheckpoint")]
        if any(isinstance(state, dict) and state.get("best_model_path") for state in states):
            raise DamagedCheckpoint(run.best, "it is missing") from None


def _read_last(path: Path) -> Mapping[str, Any]:
    checkpoint = read_checkpoint(path, map_location="meta", mmap=True)
    wrong = [name for name, kind in PARTS.items() if not isinstance(checkpoint.get(name), kind)]
    if wrong:
        raise DamagedCheckpoint(path, f"no {', '.join(wrong)} in it")
    return checkpoint


def check_fits(path: Path, module: Any) -> None:
    """Compares the names and shapes of a checkpoint's weights with those of the module that they are meant for.

    Raises:
        UserError: They differ.
    """
    stored = read_checkpoint(path, map_location="meta", mmap=True)["state_dict"]
    _compare(stored, _kept(module), path)


def _kept(module: Any) -> Mapping[str, Any]:
    """Selects the weights that checkpoints of a module hold: of one that trains adapters these alone."""
    adapters = getattr(module, "adapters", None)
    return module.state_dict() if adapters is None else adapters.select(module.state_dict())


def load_weights(model: Any, state: Mapping[str, Any], path: Path) -> None:
    """Loads weights that a checkpoint holds into the model that they are meant for.

    Raises:
        UserError: They are another model's.
    """
    _compare(state, model.state_dict(), path)
    model.load_state_dict(state)


def _compare(stored: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> None:
    wrong = [
        name
        for name in sorted(stored.keys() | wanted.keys(), key=str)
        if getattr(stored.get(name), "shape", None) != getattr(wanted.get(name), "shape", None)
    ]
    if wrong:
        problem = (
            f"not the weights of this model: {len(wrong)} tensors are missing or of other shapes ({wrong[0]}, ...)"
        )
        hint = f"resume with the configuration that it was trained with, or delete {path.parent} and train again"
        raise UserError(problem, place=str(path), hint=hint)


def drop_checkpoints(run: RunFolder, keep: str) -> None:
    """Deletes the checkpoints of a training that has ended: hf/ has its best model, and nothing goes on from them.

    Args:
        keep: `none`, `best` (best.ckpt, with which an export is compared), or `all`.
    """
    none, best, every = KEPT_CHECKPOINTS
    dropped = {every: (), best: (run.last, run.previous), none: (run.last, run.previous, run.best)}[keep]
    for path in dropped:
        delete(path)


def best_weights(run: RunFolder) -> dict[str, Any]:
    """Reads the training module's weights from the best checkpoint.

    Raises:
        UserError: It is damaged.
        FileNotFoundError: There is none.
    """
    return dict(read_checkpoint(run.best)["state_dict"])


def load_best(module: Any, run: RunFolder, kind: Any) -> Any:
    """Loads the best checkpoint's weights into the module's model, and returns that model.

    Where training has sharded the module's model, the weights go into a new, unsharded one. Adapters are merged.

    Args:
        kind: The Auto class of the model.
    """
    from torch.distributed.tensor import DTensor

    try:
        state = best_weights(run)
    except FileNotFoundError as error:
        hint = "raise model.num_epochs: no validation was reached"
        raise UserError("no best checkpoint was written", place=str(run.best), hint=hint) from error
    is_sharded = any(isinstance(parameter, DTensor) for parameter in module.parameters())
    if (adapters := getattr(module, "adapters", None)) is not None:
        return adapters.merged(adapters.build() if is_sharded else module.model, model_state(state), run.best)
    if not is_sharded:
        load_weights(module, state, run.best)
        return module.model
    whole = kind.from_config(module.model.config)
    load_weights(whole, model_state(state), run.best)
    return whole


def model_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the model's weights from a training module's checkpoint, without those of auxiliary heads."""
    return {name.removeprefix("model."): value for name, value in state.items() if name.startswith("model.")}
