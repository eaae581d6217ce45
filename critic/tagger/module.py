"""The tagger as a LightningModule: an encoder with a class for each token, and F1 of characters on validation."""

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from critic.auxiliary_losses import answer_overlap, auxiliary_loss
from critic.encoder_module import EncoderModule
from critic.options import TaggerOptions
from critic.tagger.span_calibration import tagger_labels
from critic.tagger.windows import answer_places, best_windows, log_odds, run_model
from critic.weights import load_classifier
from data_modules.encoding.tokens import UNTYPED_TAG
from faithkit.errors import UserError
from faithkit.fast import accelerate_training, is_enabled
from faithkit.training.training_options import OptimizerOptions


def token_loss(
    logits: Tensor,
    tags: Tensor,
    *,
    num_tokens: Tensor | int,
    world_size: int,
    positive_weight: float = 1.0,
    focal_gamma: float = 0.0,
) -> Tensor:
    """Computes the mean cross-entropy of tags over the tokens of the whole batch.

    Use it for responses with annotated spans, with types, without types, or mixed:

        loss = world_size / num_tokens * sum over tokens of -w (1 - p)^g log p,

    where p is the probability of the token's tag, w is `positive_weight` for hallucinated tokens and 1 for others, and
    g is `focal_gamma`. For a hallucinated token without a type p is the sum over all types. The sum of a process is
    scaled as in `critic.sequence.module.batch_loss`.

    | Relative                       | Use it for                                                               |
    |--------------------------------|--------------------------------------------------------------------------|
    | `critic.sequence.module.batch_loss` | one label for the whole response |
    | `critic.auxiliary_losses` | few annotations: an additional auxiliary task |
    | `positive_weight` above 1      | rare spans, if a missed span costs more than a false alarm |
    | `focal_gamma` above 0          | rare spans, if easy tokens dominate the loss |

    >>> import torch
    >>> from critic.tagger.module import token_loss
    >>> logits = torch.tensor([[3.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    >>> tags = torch.tensor([0, 1, -1])  # outside, hallucinated, unknown
    >>> round(float(token_loss(logits, tags, num_tokens=2, world_size=1)), 4)
    0.3709

    Args:
        logits: [tokens, classes]: outside, then hallucinated or its types.
        tags: 0 outside, a type from 1, untyped, or negative without annotation [tokens].
        num_tokens: Tokens with a tag in the whole batch, over all processes.
        positive_weight: Weight of hallucinated tokens.
        focal_gamma: Above 0, confidently correct tokens have less weight (Lin et al. 2017, equation 4).
    """
    counted = tags >= 0
    tags, log_probs = tags[counted], F.log_softmax(logits.float()[counted], dim=1)
    hallucinated = log_probs[:, 1:].logsumexp(1)
    untyped = (tags == UNTYPED_TAG) | (logits.shape[1] == 2)
    typed = log_probs.gather(1, torch.where(untyped, 0, tags)[:, None])[:, 0]
    log_prob = torch.where(tags == 0, log_probs[:, 0], torch.where(untyped, hallucinated, typed))
    weight = torch.where(tags > 0, positive_weight, 1.0)
    if focal_gamma:
        weight = weight * (1 - log_prob.exp()).clamp(min=1e-6) ** focal_gamma
    return -(weight * log_prob).sum() * (world_size / num_tokens)


class TaggerModule(EncoderModule[TaggerOptions]):
    """Learns which tokens of an answer its context does not support.

    Args:
        num_steps: Optimiser steps of the whole training, for the schedule.
        dataset: Names the validation metrics: `validation/<dataset>/char_f1`.
        seed: Seeds the new head and dropout.
    """

    main_metric = "char_f1"

    def __init__(
        self,
        options: TaggerOptions,
        optimizer: OptimizerOptions,
        *,
        num_steps: int,
        dataset: str,
        seed: int = 0,
    ):
        super().__init__(options, optimizer, validation_metrics, num_steps=num_steps, dataset=dataset, seed=seed)
        model = load_classifier(
            options.weights,
            tagger_labels(options.typed),
            of_tokens=True,
            dropout=options.dropout,
            attention_dropout=options.attention_dropout,
            seed=seed,
        )
        accelerate_training(model, packed=options.packed and is_enabled() and not options.token_support)
        self.set_up(model)
        if options.token_support:
            self.freeze_encoder()

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Computes the logits of the answers' tokens [tokens, classes]."""
        return self._answer_logits(run_model(self.model, batch).logits, batch)

    @staticmethod
    def _answer_logits(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
        logits = logits.flatten(0, 1)[answer_places(batch)]
        best = best_windows(log_odds(logits.detach().float()), batch["token"], len(batch["token_row"]))
        return logits[best]

    def on_fit_start(self) -> None:
        super().on_fit_start()
        held = self.trainer.datamodule.subsets["validation"]  # type: ignore[attr-defined]
        if not any((subset.encoded.columns["tag"].take(subset.indices).values >= 0).any() for subset in held):
            hint = "choose data with annotated spans: ragtruth, xsum_tokens or embedded"
            raise UserError("no validation example has annotated spans, so no checkpoint can be chosen", hint=hint)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        if self.options.token_support:
            return self.no_loss()
        output = run_model(self.model, batch, output_hidden_states=self.support is not None)
        tags = batch["tag"].masked_fill(batch["index"][batch["token_row"]] < 0, -1)
        loss = token_loss(
            self._answer_logits(output.logits, batch),
            tags,
            num_tokens=self.total((tags >= 0).sum()),
            world_size=self.trainer.world_size,
            positive_weight=self.options.positive_weight,
            focal_gamma=self.options.focal_gamma,
        )
        self.log("train/loss", loss.detach(), prog_bar=True)
        if self.support is None:
            return loss
        assert self._word_vectors is not None
        counted = (batch["index"][batch["token_row"]] >= 0)[batch["token"]]
        support = auxiliary_loss(
            self.support(output.hidden_states[-1].flatten(0, 1)[answer_places(batch)]),
            answer_overlap(self._word_vectors, batch["input_ids"].flatten(), batch["bounds"]),
            counted,
            num_tokens=self.total(counted.sum()),
            world_size=self.trainer.world_size,
        )
        self.log("train/support_loss", support.detach())
        return loss + self.options.support_weight * support

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        row, index = batch["token_row"], batch["index"]
        place = torch.arange(len(row), device=row.device) - torch.searchsorted(row, row)  # in its answer [tokens]
        logits = batch["tag"].new_zeros(len(row), 2) if self.options.token_support else self(batch)
        columns = [log_odds(logits.float()), batch["tag"].float(), batch["characters"].float()]
        self.validation.update(torch.stack([index[row], place], dim=1), torch.stack(columns, dim=1))


def validation_metrics(keys: NDArray[np.int64], values: NDArray[np.float64]) -> Mapping[str, float]:
    """Computes F1 of characters and of responses, each at its best threshold, AUROC and the loss.

    Args:
        keys: The answer of each token, ascending, and its place [tokens, 2].
        values: Log-odds of hallucinated; the tag, 0 outside, above 0 within a gold span, below 0 not counted; and the
            number of characters [tokens, 3].
    """
    from sklearn.metrics import roc_auc_score

    counted = values[:, 1] >= 0
    answer, (odds, tags, characters) = keys[counted, 0], values[counted].T
    wrong = tags > 0
    _, place = np.unique(answer, return_inverse=True)
    worst = np.full(int(place.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(worst, place, odds)
    gold = np.zeros(len(worst), bool)
    np.logical_or.at(gold, place, wrong)
    ones = np.ones(len(worst), np.int64)
    signed = np.where(wrong, odds, -odds)
    metrics = {
        "char_f1": best_f1(odds, characters * wrong, characters, int((characters * wrong).sum())),
        "response_f1": best_f1(worst, gold * ones, ones, int(gold.sum())),
        "loss": float(np.logaddexp(0.0, -signed).mean()) if len(signed) else 0.0,
    }
    for name, scores, labels in (("token_auroc", odds, wrong), ("response_auroc", worst, gold)):
        if 0 < labels.sum() < len(labels):
            metrics[name] = float(roc_auc_score(labels, scores))
    return metrics


def best_f1(
    odds: NDArray[np.float64], true_positives: NDArray[np.int64], positives: NDArray[np.int64], total: int
) -> float:
    """Computes the best F1 over all thresholds on the log-odds.

    Args:
        odds: Log-odds of each row; rows with at least the threshold are predicted hallucinated [rows].
        true_positives: True positives that a predicted row adds [rows].
        positives: Predicted positives that it adds [rows].
        total: Gold positives of all rows.
    """
    order = np.argsort(-odds, kind="stable")
    ends = np.flatnonzero(np.diff(odds[order], append=-np.inf))  # the last of equal odds, which share a threshold
    hits, size = np.cumsum(true_positives[order])[ends], np.cumsum(positives[order])[ends]
    return float((2 * hits / np.maximum(size + total, 1)).max(initial=0.0))
