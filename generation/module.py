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
from faithkit.training.distributed import gather_rows
from faithkit.training.module import TrainingModule
from generation.forward import run_model, sums_by_row, token_losses
from generation.objectives.objective import Objective, Step


class GeneratorModule(TrainingModule):
    """Learns to write a response, given knowledge and history.

    Args:
        model: Of transformers.
        objective: Makes a loss of what the model gives.
        num_steps: Optimiser steps of the whole training, for the schedule.
        floor: Share of the peak rate that the schedule ends at.
        layer_decay: Below 1, lower layers learn slower.
        dataset: Names the validation metrics: `validation/<dataset>/perplexity`.
        seed: Of dropout, and of what the objective has to begin from.
    """

    def __init__(
        self,
        model: Any,
        objective: Objective,
        *,
        num_steps: int,
        lr: float,
        weight_decay: float,
        warmup: float,
        schedule: str,
        floor: float = 0.0,
        layer_decay: float = 1.0,
        head_lr: float | None = None,
        dataset: str = "validation",
        seed: int = 0,
    ):
        super().__init__()
        self.save_hyperparameters(ignore=["model", "objective"])
        self.model, self.objective = model, objective
        objective.set_up(model, seed)
        self._seen: list[tuple[NDArray, NDArray]] = []  # of a validation: indices; statistics of the rows

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
        self._seen.append((batch["index"].cpu().numpy(), row_statistics(self.model, batch)))

    def on_validation_epoch_end(self) -> None:
        _, values = gather_rows(*zip(*self._seen, strict=True))
        self._seen.clear()
        rows = Groups.of(map(str, range(len(values))))
        for name, [value] in language_model_statistic(rows, values)(np.ones((1, rows.count))).items():
            self.log(f"validation/{self.hparams['dataset']}/{name}", float(value), prog_bar=name == "perplexity")


@torch.inference_mode()
def row_statistics(model: Any, batch: Mapping[str, Tensor]) -> NDArray[np.float64]:
    """For each row the sum of its tokens' losses, their number, and how many were the likeliest [rows, 3]."""
    logits = run_model(model, batch).logits
    losses = token_losses(logits, batch["target"])
    right = (logits[0].argmax(-1) == batch["target"]).float()
    columns = [losses, torch.ones_like(losses), right]
    rows = [sums_by_row(column.double(), batch["target_row"], len(batch["index"])) for column in columns]
    return torch.stack(rows, dim=1).cpu().numpy()
