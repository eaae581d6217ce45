"""A generator as a LightningModule: a language model, an objective, and perplexity on validation."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from faithkit.evaluation.intervals import Groups
from faithkit.evaluation.language_model import language_model_statistic
from faithkit.training.module import TrainingModule
from faithkit.training.options import OptimizerOptions
from faithkit.training.row_metric import RowMetric
from generation.forward import run_model, sums_by_row, token_losses
from generation.objectives.objective import Objective, Step


class GeneratorModule(TrainingModule):
    """Learns to write a response, given knowledge and history.

    Args:
        model: Of transformers.
        objective: Computes the loss from the model's output.
        num_steps: Optimiser steps of the whole training, for the schedule.
        dataset: Names the validation metrics: `validation/<dataset>/perplexity`.
        seed: Seeds dropout, and what the objective has to begin from.
    """

    def __init__(
        self,
        model: Any,
        objective: Objective,
        optimizer: OptimizerOptions,
        *,
        num_steps: int,
        dataset: str = "validation",
        seed: int = 0,
    ):
        super().__init__(optimizer, num_steps=num_steps, dataset=dataset, seed=seed)
        self.model, self.objective = model, objective
        objective.set_up(model, seed)
        self.validation = RowMetric(_figures)

    def configure_model(self) -> None:
        if isinstance(self.trainer.strategy, pl.strategies.ModelParallelStrategy):
            from faithkit.training.sharding import shard

            shard(self.model, self.device_mesh)
            if any(True for _ in self.objective.parameters()):
                shard(self.objective, self.device_mesh)

    def on_fit_start(self) -> None:
        super().on_fit_start()
        self.objective.check(self.trainer.datamodule)  # type: ignore[attr-defined]

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        output = self.objective.run(self.model, batch)
        step = Step(
            batch=batch,
            model=self.model,
            output=output,
            losses=token_losses(output.logits, batch["target"]),
            processes=self,
            log=lambda name, value: self.log(f"train/{name}", value.detach()),
        )
        loss = self.objective(step)
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.validation.update(batch["index"].cpu(), torch.from_numpy(row_statistics(self.model, batch)))

    def on_validation_epoch_end(self) -> None:
        self.log_validation(self.validation, "perplexity")


def _figures(numbers: NDArray[np.int64], values: NDArray[np.float64]) -> Mapping[str, float]:
    """The metrics of all rows, whose values are `row_statistics`."""
    rows = Groups.of(map(str, range(len(values))))
    found = language_model_statistic(rows, values)(np.ones((1, rows.count)))
    return {name: float(value) for name, [value] in found.items()}


@torch.inference_mode()
def row_statistics(model: Any, batch: Mapping[str, Tensor]) -> NDArray[np.float64]:
    """For each row the sum of its tokens' losses, their number, and how many were the likeliest [rows, 3]."""
    logits = run_model(model, batch).logits
    losses = token_losses(logits, batch["target"])
    right = (logits[0].argmax(-1) == batch["target"]).float()
    columns = [losses, torch.ones_like(losses), right]
    rows = [sums_by_row(column.double(), batch["target_row"], len(batch["index"])) for column in columns]
    return torch.stack(rows, dim=1).cpu().numpy()
