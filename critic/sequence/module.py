"""The critic as a LightningModule: an encoder with two classes, cross-entropy, and macro-F1 on validation.

Auxiliary losses for training are in `critic.auxiliary_losses`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from critic.auxiliary_losses import TokenHead, auxiliary_loss, overlap_targets
from critic.encoder_module import EncoderModule
from critic.options import CriticOptions
from critic.weights import load_classifier
from data_modules.encoding.encoder import MODEL_INPUTS
from data_modules.encoding.pair_encoder import RESPONSE
from faithkit.calibration import ScoreCalibration, log_odds
from faithkit.fast import EVERY_TOKEN, FIRST_TOKEN, accelerate_training, pack_inputs
from faithkit.metrics.classification import score_validation
from faithkit.training.training_options import OptimizerOptions


def batch_loss(logits: Tensor, targets: Tensor, *, num_rows: int, world_size: int, label_smoothing: float) -> Tensor:
    """Computes the mean cross-entropy with soft targets over the whole batch.

    Use it for labelled pairs, for weak labels with a probability, and for mixtures of both:

        loss = world_size / num_rows * sum over rows of -(1 - t) log p(faithful) - t log p(hallucinated),

    where t is the row's target after label smoothing, (1 - s) t + s / 2. Processes average their gradients, so the sum
    of each process is scaled by `world_size / num_rows`: the gradient equals that of one process with all rows. Rows
    without a target (padding, no label) do not count.

    | Relative                            | Use it for                                                   |
    |-------------------------------------|--------------------------------------------------------------|
    | `critic.auxiliary_losses` | few labels: an additional auxiliary task for every token |
    | `critic.tagger.module.token_loss` | labels of tokens instead of one for the response             |
    | `torch.nn.BCEWithLogitsLoss`        | the same for models of one logit                             |

    >>> import torch
    >>> from critic.sequence.module import batch_loss
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 9.0]])
    >>> targets = torch.tensor([0.0, 0.5, torch.nan])  # faithful, undecided, no label
    >>> round(float(batch_loss(logits, targets, num_rows=2, world_size=1, label_smoothing=0.0)), 4)
    0.41

    Args:
        logits: [rows, classes].
        targets: P(hallucinated) [rows]; NaN or negative without a target.
        num_rows: Rows of the whole batch, over all processes.
    """
    counted = targets >= 0  # false of NaN
    hallucinated = targets[counted].float()
    distribution = torch.stack([1 - hallucinated, hallucinated], dim=1)
    total = F.cross_entropy(logits.float()[counted], distribution, reduction="sum", label_smoothing=label_smoothing)
    return total * (world_size / num_rows)


class CriticModule(EncoderModule[CriticOptions]):
    """Learns P(hallucinated | knowledge, response).

    Args:
        num_steps: Optimiser steps of the whole training, for the schedule.
        dataset: Names the validation metrics: `validation/<dataset>/macro_f1`.
        seed: Seeds the new head and dropout.
    """

    main_metric = "macro_f1"

    def __init__(
        self,
        options: CriticOptions,
        optimizer: OptimizerOptions,
        *,
        num_steps: int,
        dataset: str,
        seed: int = 0,
    ):
        super().__init__(options, optimizer, validation_metrics, num_steps=num_steps, dataset=dataset, seed=seed)
        model = load_classifier(options.weights, dropout=options.dropout, seed=seed)
        needs_tokens = options.reads_tokens or options.support_weight or options.span_weight
        accelerate_training(model, EVERY_TOKEN if needs_tokens else FIRST_TOKEN)
        self.set_up(model)
        if options.freeze_encoder:
            self.freeze_encoder()
        if options.span_weight:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed + 1)
                self.span_head = TokenHead(self.model.config.hidden_size)

    def forward(self, batch: dict[str, Tensor], **options: Any) -> Any:
        """Runs the model; the output's `logits` are [rows, classes]."""
        inputs = {name: batch[name] for name in MODEL_INPUTS if name in batch}
        return self.model(**pack_inputs(self.model, inputs), **options)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        if self.options.evidence_alone:
            return self.no_loss()
        output = self(batch, output_hidden_states=self.support is not None or self.span_head is not None)
        world_size = self.trainer.world_size
        is_padding = batch["index"] < 0  # [rows]
        loss = batch_loss(
            output.logits,
            batch["target"].masked_fill(is_padding, torch.nan),
            num_rows=int(batch["num_rows"]),
            world_size=world_size,
            label_smoothing=self.options.label_smoothing,
        )
        self.log("train/loss", loss.detach(), prog_bar=True)
        if self.support is not None:
            assert self._word_vectors is not None
            counted = (batch["segment"] == RESPONSE) & ~is_padding[:, None]  # [rows, width]
            targets = overlap_targets(self._word_vectors[batch["input_ids"]], batch["segment"])
            predicted, num_tokens = self.support(output.hidden_states[-1]), self.total(counted.sum())
            support = auxiliary_loss(predicted, targets, counted, num_tokens=num_tokens, world_size=world_size)
            self.log("train/support_loss", support.detach())
            loss = loss + self.options.support_weight * support
        if self.span_head is not None:
            marks = batch["mark"]  # below 0 without annotation
            counted = (marks >= 0) & ~is_padding[:, None]
            # The hidden states before the last layer: see critic.auxiliary_losses.
            predicted, num_tokens = self.span_head(output.hidden_states[-2]), self.total(counted.sum())
            spans = auxiliary_loss(predicted, marks, counted, num_tokens=num_tokens, world_size=world_size)
            self.log("train/span_loss", spans.detach())
            loss = loss + self.options.span_weight * spans
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        labels = batch["label"].float()[:, None]
        logits = labels.new_zeros(len(labels), 2) if self.options.evidence_alone else self(batch).logits.float()
        self.validation.update(batch["index"], torch.cat([logits, labels], dim=1))


def validation_metrics(_: NDArray[np.int64], values: NDArray[np.float64]) -> Mapping[str, float]:
    """Computes the classification metrics at threshold 0.5, and the loss, of the labelled rows.

    Args:
        values: Two logits and the label of each row, 1 for hallucinated and below 0 without a label [rows, 3].
    """
    labelled = values[values[:, 2] >= 0]
    return score_validation(ScoreCalibration().scores(log_odds(labelled[:, :2])), labelled[:, 2].astype(np.int8))
