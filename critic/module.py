"""The critic as a LightningModule: an encoder with two classes, cross-entropy, and macro-F1 on validation.

Beside it, in training only, may stand the head of the support loss: see `critic.overlap_supervision`.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from critic.encoder_module import EncoderModule
from critic.overlap_supervision import overlap_loss, overlap_targets, response_tokens
from critic.score_calibration import ScoreCalibration, log_odds
from critic.weights import load_classifier
from data_modules.encoding.pairs import MODEL_INPUTS
from faithkit.evaluation.classification import statistic
from faithkit.evaluation.intervals import Groups
from faithkit.evaluation.outcomes import Outcomes
from faithkit.training.distributed import gather_rows


class CriticModule(EncoderModule):
    """Learns P(hallucinated | knowledge, response).

    Args:
        weights: A folder, hub name or local name of an encoder, or of a classifier to go on from.
        num_steps: Optimiser steps of the whole training, for the schedule.
        dataset: Names the validation metrics: `validation/<dataset>/macro_f1`.
        label_smoothing: Share of the probability that the target gives to both classes alike.
        support_weight: Weight of the support loss beside the label's; 0 does without it.
        floor: Share of the peak rate that the schedule ends at.
        freeze_embeddings: Word embeddings stay as they are.
        dropout: Overrides the encoder's own; None keeps it.
        seed: Of the new head and of dropout.
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
        floor: float = 0.0,
        layer_decay: float = 1.0,
        head_lr: float | None = None,
        label_smoothing: float = 0.0,
        support_weight: float = 0.0,
        freeze_embeddings: bool = False,
        dropout: float | None = None,
        gradient_checkpointing: bool = False,
        dataset: str = "validation",
        seed: int = 0,
    ):
        super().__init__()
        self.save_hyperparameters()
        self.set_up(load_classifier(weights, dropout=dropout, seed=seed))
        self._seen: list[tuple[NDArray, NDArray]] = []  # of a validation: indices; logits and labels

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self._run(batch).logits

    def _run(self, batch: dict[str, Tensor], **options: Any) -> Any:
        return self.model(**{name: batch[name] for name in MODEL_INPUTS if name in batch}, **options)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        output = self._run(batch, output_hidden_states=self.support is not None)
        loss = self._loss(output.logits, batch)
        self.log("train/loss", loss.detach(), prog_bar=True)
        if self.support is None:
            return loss
        support = self._support_loss(self.support(output.hidden_states[-1]), batch)
        self.log("train/support_loss", support.detach())
        return loss + self.hparams["support_weight"] * support

    def _loss(self, logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
        return batch_loss(
            logits,
            batch["target"].masked_fill(batch["index"] < 0, torch.nan),
            num_rows=int(batch["num_rows"]),
            world_size=self.trainer.world_size,
            label_smoothing=self.hparams["label_smoothing"],
        )

    def _support_loss(self, logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
        counted = response_tokens(batch["segment"], batch["index"])
        return overlap_loss(
            logits,
            overlap_targets(self._word_vectors[batch["input_ids"]], batch["segment"]),
            counted,
            num_tokens=self.total(counted.sum()),
            world_size=self.trainer.world_size,
        )

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        columns = [self(batch).float().cpu().numpy(), batch["label"].cpu().numpy()]
        self._seen.append((batch["index"].cpu().numpy(), np.column_stack(columns)))

    def on_validation_epoch_end(self) -> None:
        _, values = gather_rows(*zip(*self._seen, strict=True))
        self._seen.clear()
        labelled = values[values[:, 2] >= 0]
        for name, value in validation_metrics(labelled[:, :2], labelled[:, 2].astype(np.int8)).items():
            self.log(f"validation/{self.hparams['dataset']}/{name}", value, prog_bar=name == "macro_f1")


def batch_loss(logits: Tensor, targets: Tensor, *, num_rows: int, world_size: int, label_smoothing: float) -> Tensor:
    """Cross-entropy averaged over the whole batch, of which this process has a share.

    A target between 0 and 1 is a weak label's probability: the loss is then least where the model says just that.
    Processes average their gradients, so each share's sum is scaled by `world_size / num_rows`: the gradient is that of
    one process with all rows. Rows without a target (padding, no label) count for nothing.

    Args:
        logits: (rows, classes).
        targets: P(hallucinated) (rows,); NaN, or anything below 0, where there is none.
        num_rows: Rows of the whole batch, over all processes.
    """
    counted = targets >= 0  # false of NaN
    hallucinated = targets[counted].float()
    wanted = torch.stack([1 - hallucinated, hallucinated], dim=1)
    total = F.cross_entropy(logits.float()[counted], wanted, reduction="sum", label_smoothing=label_smoothing)
    return total * (world_size / num_rows)


def validation_metrics(logits: NDArray, labels: NDArray) -> dict[str, float]:
    """The classification metrics at threshold 0.5, and the loss."""
    scores = ScoreCalibration().scores(log_odds(logits))
    groups = Groups.of(map(str, range(len(labels))))
    outcomes = Outcomes(gold=labels, called=(scores >= 0.5).astype(np.int8), scores=scores, groups=groups)
    metrics = {name: float(value[0]) for name, value in statistic(outcomes)(np.ones((1, len(labels)))).items()}
    right = np.where(labels == 1, scores, 1 - scores)
    metrics["loss"] = float(-np.log(np.maximum(right, 1e-12)).mean())
    return metrics
