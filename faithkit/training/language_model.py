"""A language model under training: logits at the targets alone, losses, and the figures of a validation.

A batch holds `target` [tokens], the tokens that are learnt, `target_row` the row of each and `target_at` the place that
predicts it, counted over the model's whole output (`data_modules.encoding`: `causal`, `branches`, `turns`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from faithkit.metrics.perplexity import language_model_statistic
from faithkit.packing import Packing
from faithkit.statistics.bootstrap import Groups

INPUTS = ("input_ids", "attention_mask", "decoder_input_ids", "position_ids")  # arrays of a batch that models take


class Processes(Protocol):
    """The processes of a distributed training, each with its share of every batch."""

    @property
    def world_size(self) -> int: ...

    @property
    def rank(self) -> int: ...

    def total(self, count: Tensor) -> Tensor:
        """Sums a count over all processes; at least 1."""
        ...

    def gather(self, values: Tensor, *, with_gradients: bool = False) -> Tensor:
        """Stacks the values of all processes [processes, ...]."""
        ...


@dataclass(frozen=True, slots=True)
class OneProcess:
    """A training in a single process."""

    world_size: int = 1
    rank: int = 0

    def total(self, count: Tensor) -> Tensor:
        return count.clamp(min=1)

    def gather(self, values: Tensor, *, with_gradients: bool = False) -> Tensor:
        return values[None]


def run_model(model: Any, batch: Mapping[str, Tensor], **options: Any) -> Any:
    """Runs the model; `logits` [1, tokens, vocabulary] are those of the targets, response by response.

    A vocabulary is so large that logits of the contexts too would cost more than the layers do.
    """
    inputs: dict[str, Any] = {name: batch[name] for name in INPUTS if name in batch}
    if "sequence_lengths" in batch:
        inputs["packing"] = Packing.of(batch["sequence_lengths"].tolist(), batch["input_ids"].device)
    elif "part_lengths" in batch:
        parts = batch["part_lengths"].split(batch["part_counts"].tolist())
        inputs["packing"] = Packing.branched([own.tolist() for own in parts], batch["input_ids"].device)
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


def token_mean(losses: Tensor, counted: Tensor, processes: Processes) -> Tensor:
    """Averages over the counted tokens (or rows) of the whole batch, of which this process has a share.

    Processes average their gradients, so each share's sum is scaled by the number of processes: the gradient is that
    of one process with the whole batch.

    Args:
        losses: [tokens] or [rows].
        counted: Which of them count; of the same shape.
    """
    return (losses * counted).sum() * (processes.world_size / processes.total(counted.sum()))


def language_model_figures(numbers: NDArray[np.int64], values: NDArray[np.float64]) -> Mapping[str, float]:
    """The metrics of all rows, whose values are `row_statistics`."""
    rows = Groups.of(map(str, range(len(values))))
    found = language_model_statistic(rows, values)(np.ones((1, rows.count)))
    return {name: float(value) for name, [value] in found.items()}


@torch.inference_mode()
def row_statistics(model: Any, batch: Mapping[str, Tensor]) -> NDArray[np.float64]:
    """`reply_statistics` of a batch's rows."""
    return reply_statistics(run_model(model, batch).logits, batch).cpu().numpy()


def reply_statistics(logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """For each row the sum of its tokens' losses, their number, and how many were the likeliest [rows, 3].

    Args:
        logits: Of the targets [1, tokens, vocabulary].
    """
    losses = token_losses(logits, batch["target"])
    right = (logits[0].argmax(-1) == batch["target"]).float()
    columns = [losses, torch.ones_like(losses), right]
    rows = [sums_by_row(column.double(), batch["target_row"], len(batch["index"])) for column in columns]
    return torch.stack(rows, dim=1)
