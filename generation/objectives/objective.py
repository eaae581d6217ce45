"""The interface of training objectives, and what they share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

import torch
from torch import Tensor

from data_modules.encoding.encoder import Encoder
from data_modules.encoding.turn_encoder import TurnEncoder
from faithkit.settings.check import options
from faithkit.training.language_model import OneProcess, Processes, run_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A batch, the model's output for it, and what else an objective needs.

    Args:
        batch: The encoder's arrays, with `index` [rows] (below 0 for a row that only fills the batch) and `num_rows`
            (rows of the whole batch, over all processes).
        output: What `Objective.run` gave.
        losses: Cross-entropy of each target token [tokens], in the order of `batch["target"]`.
        processes: Those that share the batch.
        log: Takes the name and value of a further number for the training's log.
    """

    batch: Mapping[str, Tensor]
    output: Any
    losses: Tensor
    processes: Processes
    log: Callable[[str, Tensor], None]

    @property
    def real(self) -> Tensor:
        """Marks the rows that are data, not filling [rows]."""
        return self.batch["index"] >= 0

    @classmethod
    def of_losses(cls, responses: Sequence[Sequence[float]]) -> "Step":
        """Makes the step of a single process from the losses of each response's tokens, to try an objective alone."""
        row = torch.tensor([number for number, losses in enumerate(responses) for _ in losses])
        count = len(responses)
        return cls(
            batch={"target_row": row, "index": torch.arange(count), "num_rows": torch.tensor(count)},
            output=None,
            losses=torch.tensor([loss for losses in responses for loss in losses], requires_grad=True),
            processes=OneProcess(),
            log=lambda name, value: None,
        )


@options("objective")
class ObjectiveOptions:
    """The keys of the block `objective` besides `_target_`; an objective with options has a subclass with fields."""


class Objective(torch.nn.Module, ABC):
    """A loss for generators. Its buffers and parameters are trained, checkpointed and sharded with the model's.

    Only `forward` must be implemented; the other methods do nothing by default.

    Args:
        options: Fields of the class that the attribute `options` is annotated with, which checks them.
    """

    options: ObjectiveOptions

    def __init__(self, **options: Any):
        super().__init__()
        self.options = self.options_class()(**options)

    @classmethod
    def options_class(cls) -> type[ObjectiveOptions]:
        """Returns the class of its options, with which the command line is checked too."""
        found: type[ObjectiveOptions] = get_type_hints(cls)["options"]
        return found

    def encoder(self, encoder: Encoder, turns: TurnEncoder) -> Encoder:
        """Wraps the encoder of plain turns if the objective needs further columns.

        Raises:
            UserError: The objective does not support such a model.
        """
        return encoder

    def check(self, data: Any) -> None:
        """Called once, with the DataModule, when training begins.

        Raises:
            UserError: The data lack something that the objective needs.
        """

    def set_up(self, model: Any, seed: int) -> None:
        """Called once with the model before training, to create parameters."""

    def run(self, model: Any, batch: Mapping[str, Tensor]) -> Any:
        """Runs the model; the output's `logits` are those of the targets, anything else is for `forward`."""
        return run_model(model, batch)

    @abstractmethod
    def forward(self, step: Step) -> Tensor:
        """Computes this process's part of the loss: the mean over processes is the loss of the whole batch."""
