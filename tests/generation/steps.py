"""Steps of training made by hand: losses as they are given, and processes that are none."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from faithkit.training.language_model import OneProcess
from generation.objectives.objective import Step


@dataclass
class Share:
    """One of several processes, which know beforehand what the others have."""

    counts: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    rank: int = 0

    @property
    def world_size(self) -> int:
        return 2

    def total(self, count: Tensor) -> Tensor:
        return self.counts.pop(0).clamp(min=1)

    def gather(self, values: Tensor, *, with_gradients: bool = False) -> Tensor:
        return torch.stack(self.values)


def step_of(rows: list[list[float]], *, padding: tuple[int, ...] = (), processes: Any = None, **values: Any) -> Step:
    """A step whose rows have these losses of their tokens.

    Args:
        padding: Rows that are there to fill the batch.
    """
    step = Step.of_losses(rows)
    step.batch["index"][list(padding)] = -1
    batch = {**step.batch, "num_rows": torch.tensor(len(rows) - len(padding)), **values}
    return replace(step, batch=batch, processes=processes or OneProcess())


def gradient(loss: Tensor, step: Step) -> list[float]:
    """The gradient of the loss in each token's loss: its weight."""
    step.losses.grad = None
    loss.backward()
    assert step.losses.grad is not None
    return step.losses.grad.tolist()
