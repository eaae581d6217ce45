"""Makes the inputs of a model from a batch of token ids."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from critic.weights import first_position
from data_modules.encoding.causal import padded_inputs
from data_modules.encoding.ragged import Ragged
from faithkit.fast.packing import Packing, pack_rows


def to_inputs(batch: Mapping[str, NDArray[Any]], device: Any) -> dict[str, Tensor]:
    """Moves the arrays of a batch to a device; without a mask, where nothing is padded, attention is faster."""
    inputs = {name: torch.from_numpy(array).to(device) for name, array in batch.items()}
    if bool(batch["attention_mask"].all()):
        del inputs["attention_mask"]
    return inputs


def pack_inputs(batch: Mapping[str, NDArray[Any]], model: Any) -> dict[str, Any]:
    """Packs the rows of a batch, and begins to copy them to a GPU."""
    packed = pack_rows({name: torch.from_numpy(array) for name, array in batch.items()}, first_position(model))
    lengths = packed.pop("packing").lengths
    moved = {name: side.pin_memory().to(model.device, non_blocking=True) for name, side in packed.items()}
    return moved | {"packing": Packing.of(lengths, model.device)}


def pad_inputs(rows: Sequence[Sequence[int]], pad_id: int, device: Any) -> dict[str, Tensor]:
    """Pads rows of token ids at the right, and moves them to a device."""
    return to_inputs(padded_inputs(Ragged.from_lists(rows), pad_id), device)
