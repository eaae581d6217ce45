"""The best checkpoint of a training: read as tensors, never executed."""

from collections.abc import Mapping
from typing import Any

import torch

from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder


def load_best(module: Any, run: RunFolder, kind: Any) -> Any:
    """The model with the best checkpoint's weights; nothing in the file is executed.

    It is the module's own, or, where training has sharded that one, a whole one of its own.

    Args:
        kind: The Auto class of the model.
    """
    from torch.distributed.tensor import DTensor

    try:
        state = torch.load(run.best, map_location="cpu", weights_only=True)["state_dict"]
    except FileNotFoundError as error:
        hint = "raise model.num_epochs: no validation was reached"
        raise UserError("no best checkpoint was written", place=str(run.best), hint=hint) from error
    except (RuntimeError, EOFError, KeyError, ValueError) as error:
        raise UserError(f"the checkpoint is cut short: {error}", place=str(run.best), hint="train again") from error
    if not any(isinstance(parameter, DTensor) for parameter in module.parameters()):
        module.load_state_dict(state)
        return module.model
    whole = kind.from_config(module.model.config)
    whole.load_state_dict(model_state(state))
    return whole


def model_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """The model's own weights from a training module's checkpoint: what helped in training stays behind."""
    return {name.removeprefix("model."): value for name, value in state.items() if name.startswith("model.")}
