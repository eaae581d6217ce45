"""Runs a batch of turns through a language model, with logits at the responses' tokens alone."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from faithkit.packing import Packing

INPUTS = ("input_ids", "attention_mask", "decoder_input_ids", "position_ids")  # arrays of a batch that models take


def run_model(model: Any, batch: Mapping[str, Tensor], **options: Any) -> Any:
    """Runs the model; `logits` [1, tokens, vocabulary] are those of the targets, response by response.

    A vocabulary is so large that logits of the contexts too would cost more than the layers do.
    """
    inputs: dict[str, Any] = {name: batch[name] for name in INPUTS if name in batch}
    if "sequence_lengths" in batch:
        inputs["packing"] = Packing.of(batch["sequence_lengths"].tolist(), batch["input_ids"].device)
    with at_places(model.get_output_embeddings(), batch["target_at"]):
        return model(**inputs, use_cache=False, **options)


@contextmanager
def at_places(head: torch.nn.Module, places: Tensor) -> Iterator[None]:
    """Restricts a model's head to these places, counted over the whole batch.

    It is done by a hook because every architecture wraps its head differently, and sharding wraps all of it.
    """
    hook = head.register_forward_pre_hook(lambda _, inputs: (inputs[0].flatten(0, 1)[places][None], *inputs[1:]))
    try:
        yield
    finally:
        hook.remove()


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Computes the cross-entropy of each target, in fp32 [tokens].

    Args:
        logits: [1, tokens, vocabulary].
    """
    return F.cross_entropy(logits[0].float(), targets, reduction="none")


def sums_by_row(values: Tensor, row: Tensor, num_rows: int) -> Tensor:
    """Sums the values [tokens] of each row [rows]."""
    return torch.zeros(num_rows, dtype=values.dtype, device=values.device).index_add(0, row, values)
