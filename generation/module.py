"""A generator as a LightningModule: a language model, an objective, and perplexity on validation."""

from typing import Any

import torch
from torch import Tensor

from faithkit.training.language_model import language_model_figures, row_statistics, token_losses
from faithkit.training.module import TrainingModule
from faithkit.training.options import OptimizerOptions
from faithkit.training.row_metric import RowMetric
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
        self.validation = RowMetric(language_model_figures)

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
