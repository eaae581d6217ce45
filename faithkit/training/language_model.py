"""Language models in training: logits at the targets only, losses, and validation metrics.

A batch has `target` [tokens], the tokens to learn, `target_row` with the row of each, and `target_at` with the position
that predicts it, counted over the model's whole output (`data_modules.encoding`: `causal`, `branches`, `turns`).
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

from faithkit.fast import Packing
from faithkit.reports.perplexity_report import language_model_statistic
from faithkit.statistics.bootstrap import Groups

INPUTS = ("input_ids", "attention_mask", "decoder_input_ids", "position_ids")  # the model's inputs in a batch


class Processes(Protocol):
    """The processes of a distributed training, each with a part of every batch."""

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
    """Training in a single process."""

    world_size: int = 1
    rank: int = 0

    def total(self, count: Tensor) -> Tensor:
        return count.clamp(min=1)

    def gather(self, values: Tensor, *, with_gradients: bool = False) -> Tensor:
        return values[None]


def run_model(model: Any, batch: Mapping[str, Tensor], **options: Any) -> Any:
    """Runs the model and computes the logits of the targets only [1, tokens, vocabulary], response by response.

    With a large vocabulary, logits of the contexts would cost more than all layers.
    """
    inputs: dict[str, Any] = {name: batch[name] for name in INPUTS if name in batch}
    if "sequence_lengths" in batch:
        inputs["packing"] = Packing.of(batch["sequence_lengths"].tolist(), batch["input_ids"].device)
    elif "part_lengths" in batch:
        parts = batch["part_lengths"].split(batch["part_counts"].tolist())
        inputs["packing"] = Packing.branched([part.tolist() for part in parts], batch["input_ids"].device)
    with at_places(model.get_output_embeddings(), batch["target_at"]):
        return model(**inputs, use_cache=False, **options)


@contextmanager
def at_places(head: torch.nn.Module, places: Tensor) -> Iterator[None]:
    """Restricts a model's head to these positions, counted over the whole batch.

    A hook works for every architecture, and for sharded models.
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
    """Averages over the counted tokens (or rows) of the whole batch, of which this process has a part.

    Processes average their gradients, so the sum of each part is scaled by the number of processes: the gradient
    equals that of one process with the whole batch.

    Args:
        losses: [tokens] or [rows].
        counted: Which of them count; the same shape.
    """
    return (losses * counted).sum() * (processes.world_size / processes.total(counted.sum()))


def language_model_figures(numbers: NDArray[np.int64], values: NDArray[np.float64]) -> Mapping[str, float]:
    """Computes the metrics of all rows from their `row_statistics`."""
    rows = Groups.of(map(str, range(len(values))))
    found = language_model_statistic(rows, values)(np.ones((1, rows.count)))
    return {name: float(value) for name, [value] in found.items()}


@torch.no_grad()  # sharded weights need version counters, which inference mode leaves out
def row_statistics(model: Any, batch: Mapping[str, Tensor]) -> NDArray[np.float64]:
    """Runs the model and computes the `reply_statistics` of a batch's rows."""
    return reply_statistics(run_model(model, batch).logits, batch).cpu().numpy()


def reply_statistics(logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Computes for each row the sum of its token losses, their number, and how many were the likeliest [rows, 3].

    Args:
        logits: The logits of the targets [1, tokens, vocabulary].
    """
    losses = token_losses(logits, batch["target"])
    right = (logits[0].argmax(-1) == batch["target"]).float()
    columns = [losses, torch.ones_like(losses), right]
    rows = [sums_by_row(column.double(), batch["target_row"], len(batch["index"])) for column in columns]
    return torch.stack(rows, dim=1)
