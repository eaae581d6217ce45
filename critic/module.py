"""The critic as a LightningModule: an encoder with two classes, cross-entropy, and macro-F1 on validation."""

from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from common.distributed import gather_rows
from common.optimiser import build_optimizer, build_schedule, parameter_groups
from critic.verdict import Verdict
from critic.weights import load_classifier
from evaluation.classification import statistic
from evaluation.intervals import Groups
from evaluation.outcomes import Outcomes

MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class CriticModule(pl.LightningModule):
    """Learns P(hallucinated | knowledge, response).

    Args:
        weights: A folder, hub name or local name of an encoder, or of a classifier to go on from.
        num_steps: Optimiser steps of the whole training, for the schedule.
        dataset: Names the validation metrics: `validation/<dataset>/macro_f1`.
        label_smoothing: Share of the probability that the target gives to both classes alike.
        dropout: Overrides the encoder's own; None keeps it.
        seed: Dropout of a step depends on this, the step and the process alone, so a resumed run repeats it exactly.
    """

    def __init__(
        self,
        *,
        weights: str,
        num_steps: int,
        lr: float,
        weight_decay: float,
        warmup: float,
        schedule: str,
        layer_decay: float = 1.0,
        head_lr: float | None = None,
        label_smoothing: float = 0.0,
        dropout: float | None = None,
        gradient_checkpointing: bool = False,
        dataset: str = "validation",
        seed: int = 0,
    ):
        super().__init__()
        self.save_hyperparameters()
        self.model = load_classifier(weights, dropout=dropout, seed=seed)
        if gradient_checkpointing:
            self.model.gradient_checkpointing_enable()
        self._seen: dict[int, list[tuple[NDArray, NDArray, NDArray]]] = {}
        self.logits: dict[int, tuple[NDArray, NDArray]] = {}  # by dataloader: indices and logits of the last evaluation

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.model(**{name: batch[name] for name in MODEL_INPUTS if name in batch}).logits

    def configure_model(self) -> None:
        if isinstance(self.trainer.strategy, pl.strategies.ModelParallelStrategy):
            from critic.sharding import shard

            shard(self.model, self.device_mesh)

    def on_fit_start(self) -> None:
        self.model.train()  # from_pretrained leaves dropout off, and Lightning does not switch it on

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        mixed = np.random.SeedSequence([self.hparams["seed"], batch_idx, self.global_rank]).generate_state(1)
        torch.manual_seed(int(mixed[0]))

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss = self._loss(self(batch), batch)
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    def _loss(self, logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
        return batch_loss(
            logits,
            batch["label"].masked_fill(batch["index"] < 0, -1),
            num_rows=int(batch["num_rows"]),
            world_size=self.trainer.world_size,
            label_smoothing=self.hparams["label_smoothing"],
        )

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        self._collect(batch, dataloader_idx)

    def test_step(self, batch: dict[str, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        self._collect(batch, dataloader_idx)

    def _collect(self, batch: dict[str, Tensor], dataloader_idx: int) -> None:
        logits = self(batch).float().cpu().numpy()
        row = (batch["index"].cpu().numpy(), logits, batch["label"].cpu().numpy())
        self._seen.setdefault(dataloader_idx, []).append(row)

    def on_validation_epoch_end(self) -> None:
        self._gather()
        _, values = self.logits[0]
        labelled = values[values[:, 2] >= 0]
        for name, value in validation_metrics(labelled[:, :2], labelled[:, 2].astype(np.int8)).items():
            self.log(f"validation/{self.hparams['dataset']}/{name}", value, prog_bar=name == "macro_f1")

    def on_test_epoch_end(self) -> None:
        self._gather()

    def _gather(self) -> None:
        for dataloader, rows in sorted(self._seen.items()):
            columns = [np.column_stack([logits, labels]) for _, logits, labels in rows]
            self.logits[dataloader] = gather_rows([index for index, *_ in rows], columns)
        self._seen.clear()

    def configure_gradient_clipping(self, optimizer: Any, gradient_clip_val: Any = None, **_: Any) -> None:
        # torch's own clipping knows sharded gradients; Lightning's refuses them.
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)

    def configure_optimizers(self) -> Any:
        h = self.hparams
        groups = parameter_groups(
            self.model, h["lr"], h["weight_decay"], layer_decay=h["layer_decay"], head_lr=h["head_lr"]
        )
        optimizer = build_optimizer(groups, h["lr"])
        schedule = build_schedule(optimizer, h["schedule"], h["num_steps"], h["warmup"])
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def batch_loss(logits: Tensor, labels: Tensor, *, num_rows: int, world_size: int, label_smoothing: float) -> Tensor:
    """Cross-entropy averaged over the whole batch, of which this process has a share.

    Processes average their gradients, so each share's sum is scaled by `world_size / num_rows`: the gradient is that of
    one process with all rows. Rows with label -1 (padding, no gold label) count for nothing.

    Args:
        logits: (rows, classes).
        labels: (rows,), -1 where there is none.
        num_rows: Rows of the whole batch, over all processes.
    """
    total = F.cross_entropy(logits.float(), labels, ignore_index=-1, reduction="sum", label_smoothing=label_smoothing)
    return total * (world_size / num_rows)


def validation_metrics(logits: NDArray, labels: NDArray) -> dict[str, float]:
    """The classification metrics at threshold 0.5, and the loss."""
    scores = Verdict().scores(logits)
    groups = Groups.of(range(len(labels)))
    outcomes = Outcomes(gold=labels, called=(scores >= 0.5).astype(np.int8), scores=scores, groups=groups)
    metrics = {name: float(value[0]) for name, value in statistic(outcomes)(np.ones((1, len(labels)))).items()}
    right = np.where(labels == 1, scores, 1 - scores)
    metrics["loss"] = float(-np.log(np.maximum(right, 1e-12)).mean())
    return metrics
