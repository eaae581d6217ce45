"""The tagger as a LightningModule: an encoder with a class for each token, and F1 of characters on validation."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from critic.encoder_module import EncoderModule
from critic.overlap_supervision import overlap_loss
from critic.tagger.fit_calibration import best_f1
from critic.tagger.forward import answer_places, best_windows, log_odds, run_model
from critic.tagger.loss import token_loss
from critic.tagger.overlap_supervision import answer_overlap
from critic.tagger.settings import tagger_labels
from critic.weights import load_token_classifier
from faithkit.errors import UserError
from faithkit.packing import use_packed_attention
from faithkit.training.distributed import gather_rows

PLACE_BITS = 24  # of a token's number among all: its example's index stands above its place in the answer


class TaggerModule(EncoderModule):
    """Learns which tokens of an answer its context does not support.

    Args:
        weights: A folder, hub name or local name of an encoder, or of a tagger or critic to go on from.
        num_steps: Optimiser steps of the whole training, for the schedule.
        typed: A class for each type of hallucination, instead of one for all.
        packed: The batches come packed (`data_modules.encoding.spans`).
        positive_weight: Of hallucinated tokens in the loss.
        focal_gamma: See `critic.tagger.loss`.
        support_weight: Weight of the support loss (`critic.overlap_supervision`) beside the tags'; 0 does without it.
        dataset: Names the validation metrics: `validation/<dataset>/char_f1`.
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
        typed: bool = False,
        packed: bool = False,
        positive_weight: float = 1.0,
        focal_gamma: float = 0.0,
        support_weight: float = 0.0,
        freeze_embeddings: bool = False,
        dropout: float | None = None,
        attention_dropout: float | None = None,
        gradient_checkpointing: bool = False,
        dataset: str = "validation",
        seed: int = 0,
    ):
        super().__init__()
        self.save_hyperparameters()
        model = load_token_classifier(
            weights, tagger_labels(typed), dropout=dropout, attention_dropout=attention_dropout, seed=seed
        )
        if packed and not use_packed_attention(model):
            name = type(model).__name__
            raise UserError(f"{name} has an attention of its own and cannot be packed", hint="set model.packed=false")
        self.set_up(model)
        self._seen: list[tuple[NDArray, NDArray]] = []  # of a validation: token numbers; odds, tags, characters

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Logits of the answers' tokens [tokens, classes]."""
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
            hint = "choose data with marked spans: ragtruth, xsum_tokens, spans or embedded"
            raise UserError("no validation example has marked spans, so no tagger can be chosen", hint=hint)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        output = run_model(self.model, batch, output_hidden_states=self.support is not None)
        tags = batch["tag"].masked_fill(batch["index"][batch["token_row"]] < 0, -1)
        loss = token_loss(
            self._answer_logits(output.logits, batch),
            tags,
            num_tokens=self.total((tags >= 0).sum()),
            world_size=self.trainer.world_size,
            positive_weight=self.hparams["positive_weight"],
            focal_gamma=self.hparams["focal_gamma"],
        )
        self.log("train/loss", loss.detach(), prog_bar=True)
        if self.support is None:
            return loss
        support = self._support_loss(output.hidden_states[-1], batch)
        self.log("train/support_loss", support.detach())
        return loss + self.hparams["support_weight"] * support

    def _support_loss(self, hidden: Tensor, batch: dict[str, Tensor]) -> Tensor:
        assert self.support is not None
        places = answer_places(batch)
        real = (batch["index"][batch["token_row"]] >= 0)[batch["token"]]
        return overlap_loss(
            self.support(hidden.flatten(0, 1)[places]),
            answer_overlap(self._word_vectors, batch["input_ids"].flatten(), batch["bounds"]),
            real,
            num_tokens=self.total(real.sum()),
            world_size=self.trainer.world_size,
        )

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        odds = log_odds(self(batch).float()).cpu().numpy()
        row, index = batch["token_row"].cpu().numpy(), batch["index"].cpu().numpy()
        place = np.arange(len(row)) - np.searchsorted(row, row)
        number = np.where(index[row] < 0, -1, (index[row] << PLACE_BITS) + place)
        columns = [odds, batch["tag"].cpu().numpy(), batch["characters"].cpu().numpy()]
        self._seen.append((number, np.column_stack(columns)))

    def on_validation_epoch_end(self) -> None:
        number, values = gather_rows(*zip(*self._seen, strict=True))
        self._seen.clear()
        for name, value in validation_metrics(number >> PLACE_BITS, *values.T).items():
            self.log(f"validation/{self.hparams['dataset']}/{name}", value, prog_bar=name == "char_f1")


def validation_metrics(answer: NDArray, odds: NDArray, tags: NDArray, characters: NDArray) -> dict[str, float]:
    """How well the tokens are told apart: F1 of characters and of responses, each at its best threshold.

    Args:
        answer: Which answer each token belongs to, in order.
        odds: Log-odds of hallucinated.
        tags: 0 outside, above 0 within a gold span, below 0 not counted.
        characters: How many each token stands for.
    """
    from sklearn.metrics import roc_auc_score

    counted = tags >= 0
    answer, odds, characters, wrong = answer[counted], odds[counted], characters[counted], tags[counted] > 0
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
