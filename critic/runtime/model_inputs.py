"""Makes the inputs of a model from a batch of token ids."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from data_modules.encoding.causal import padded_inputs
from data_modules.encoding.ragged import Ragged
from faithkit.fast import pack_inputs


def to_inputs(batch: Mapping[str, NDArray[Any]], model: Any, *, can_pack: bool = False) -> dict[str, Any]:
    """Makes the inputs of a model from a padded batch; without a mask, where nothing is padded, attention is faster.

    Args:
        can_pack: Packs the rows on a GPU if the model takes them: for logits of sequences, not for states of tokens.
    """
    inputs = {name: torch.from_numpy(array) for name, array in batch.items()}
    if can_pack and model.device.type == "cuda" and "packing" in (packed := pack_inputs(model, inputs)):
        return packed
    if bool(batch["attention_mask"].all()):
        del inputs["attention_mask"]
    return {name: side.to(model.device) for name, side in inputs.items()}


def pad_inputs(rows: Sequence[Sequence[int]], pad_id: int, model: Any) -> dict[str, Any]:
    """Pads rows of token ids at the right, and makes the inputs of a model from them."""
    return to_inputs(padded_inputs(Ragged.from_lists(rows), pad_id), model)
