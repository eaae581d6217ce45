"""What every objective is given and what it gives."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from data_modules.encoding.pairs import Encoder
from data_modules.encoding.turns import TurnEncoder
from generation.forward import run_model


class Processes(Protocol):
    """The processes of a training, each with its share of every batch."""

    @property
    def world_size(self) -> int: ...

    @property
    def rank(self) -> int: ...

    def total(self, count: Tensor) -> Tensor: ...

    def gather(self, values: Tensor, *, with_gradients: bool = False) -> Tensor: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A batch and what the model made of it.

    Args:
        batch: All that the encoder collated, and `index` [rows], below 0 for a row of padding, and `num_rows`.
        output: What `Objective.run` gave.
        losses: Of each target token [tokens], in the order of `batch["target"]`.
        log: Takes the name and value of a further number for the training's log.
    """

    batch: Mapping[str, Tensor]
    model: Any
    output: Any
    losses: Tensor
    processes: Processes
    log: Callable[[str, Tensor], None]

    @property
    def real(self) -> Tensor:
        """Which rows count [rows]."""
        return self.batch["index"] >= 0


class Objective(torch.nn.Module, ABC):
    """A loss for generators; its buffers and parameters are trained, checkpointed and sharded with the model's."""

    def encoder(self, encoder: Encoder, turns: TurnEncoder) -> Encoder:
        """What makes the batches, given what makes those of plain turns: for columns of its own.

        Raises:
            UserError: The objective does not go with such a model.
        """
        return encoder

    def check(self, data: Any) -> None:
        """Called once, with the DataModule, when training begins.

        Raises:
            UserError: The data lack what is to be learnt from.
        """

    def set_up(self, model: Any, seed: int) -> None:
        """Called once, with the model, before training: for parameters of its own."""

    def run(self, model: Any, batch: Mapping[str, Tensor]) -> Any:
        """The model's output, with whatever `forward` needs of it; its logits are those of the targets."""
        return run_model(model, batch)

    @abstractmethod
    def forward(self, step: Step) -> Tensor:
        """The loss: this process's part of it, such that the mean over processes is that of the whole batch."""


def token_mean(losses: Tensor, counted: Tensor, processes: Processes) -> Tensor:
    """The mean over the counted tokens of the whole batch, of which this process has a share.

    Processes average their gradients, so each share's sum is scaled by their number: the gradient is that of one
    process with all tokens.

    Args:
        losses: [tokens].
        counted: Which of them count [tokens].
    """
    return (losses * counted).sum() * (processes.world_size / processes.total(counted.sum()))
