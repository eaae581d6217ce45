"""The critic's part of training: its encoder, its module, and what is made of the best checkpoint."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytorch_lightning as pl
from numpy.typing import NDArray

from critic.module import CriticModule
from critic.score_calibration import ScoreCalibration
from critic.scorer import Critic
from critic.settings import Settings
from critic.weights import check_length
from data_modules.data_module import DataModule
from data_modules.encoding.pairs import PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from faithkit.errors import UserError
from faithkit.evaluation.calibration import check_aim
from faithkit.evaluation.reports.run import Reports, detection_reports
from faithkit.files.jsonl import write_jsonl
from faithkit.files.model_folder import write_folder
from faithkit.files.run_folder import RunFolder
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit.training.checkpoints import load_best
from faithkit.training.distributed import gather_rows
from faithkit.weights.resolve import resolve

log = logging.getLogger("faithkit")


class CriticTask:
    """Builds what training needs and finishes it; one for each `model=critic`.

    Args:
        weights: A folder, hub name or local name.
        max_length: Tokens of a sequence.
        order: Which text stands first.
        threshold_aim: What the decision threshold is chosen for on validation.
        support_weight: Weight of the support loss (`critic.overlap_supervision`); 0 does without it.
        freeze_embeddings: Word embeddings stay as they are.
        optimizer: lr, weight_decay, warmup, schedule, floor, layer_decay, head_lr.
    """

    def __init__(
        self,
        *,
        weights: str,
        max_length: int,
        order: str,
        label_smoothing: float,
        dropout: float | None,
        gradient_checkpointing: bool,
        threshold_aim: str,
        optimizer: Mapping[str, Any],
        support_weight: float = 0.0,
        freeze_embeddings: bool = False,
    ):
        if not 0 <= label_smoothing < 1:
            raise UserError(f"model.label_smoothing is {label_smoothing}", hint="use a share from 0 to below 1")
        if not support_weight >= 0:
            raise UserError(f"model.support_weight is {support_weight}", hint="use 0 (off) or more")
        check_aim(threshold_aim)
        self.weights, self.threshold_aim = weights, threshold_aim
        self.module_options = {
            "label_smoothing": label_smoothing,
            "support_weight": support_weight,
            "freeze_embeddings": freeze_embeddings,
            "dropout": dropout,
            "gradient_checkpointing": gradient_checkpointing,
            **optimizer,
        }
        self.tokenizer = load_tokenizer(resolve(weights))
        self.encoder = PairEncoder(tokenizer=self.tokenizer, max_length=max_length, order=order)

    def module(self, *, num_steps: int, dataset: str, seed: int) -> CriticModule:
        """The module to train."""
        module = CriticModule(
            weights=self.weights, num_steps=num_steps, dataset=dataset, seed=seed, **self.module_options
        )
        check_length(module.model, self.encoder.max_length, self.weights)
        return module

    def finish(
        self,
        trainer: pl.Trainer,
        module: CriticModule,
        data: DataModule,
        run: RunFolder,
        origin: Mapping[str, Any],
        *,
        num_resamples: int,
        num_examples: int,
    ) -> tuple[Reports, dict[str, Any]]:
        """Calibrates the best checkpoint on validation, predicts the test sets, writes predictions and hf/.

        Both go the way of every later use of the model, windows over long knowledge included.

        Returns:
            For each test set its reports, from the first process alone; and the report of the calibration.
        """
        from transformers import AutoModelForSequenceClassification

        best = load_best(module, run, AutoModelForSequenceClassification).to(trainer.strategy.root_device).eval()
        critic = Critic(best, self.encoder, ScoreCalibration())
        validation = [e for subset in data.subsets["validation"] for e in subset.examples() if e.label is not None]
        gold = np.array([e.label == HALLUCINATED for e in validation], np.int8)
        calibration, fit = ScoreCalibration.fit(shared_odds(critic, validation, trainer), gold, self.threshold_aim)
        sets: dict[str, tuple[list[Example], list[Prediction]]] = {}
        for subset in data.subsets["test"]:
            examples = subset.examples()
            scores = calibration.scores(shared_odds(critic, examples, trainer))
            predictions = calibration.predictions([e.id for e in examples], scores)
            pairs = [(e, p) for e, p in zip(examples, predictions, strict=True) if e.label is not None]
            sets[subset.name] = ([e for e, _ in pairs], [p for _, p in pairs])
            if trainer.is_global_zero and examples:
                write_jsonl(run.predictions / f"{subset.name}.jsonl", (p.to_dict() for p in predictions))
        if not trainer.is_global_zero:
            return {}, fit
        settings = Settings(
            max_length=self.encoder.max_length, order=self.encoder.order, calibration=calibration, origin=dict(origin)
        )
        write_folder(run.hf, best, self.tokenizer, settings.to_sidecar())
        options: dict[str, Any] = {"num_resamples": num_resamples, "num_examples": num_examples}
        return detection_reports(sets, meta=origin, fitted_on=validation, **options), fit


def shared_odds(critic: Critic, examples: Sequence[Example], trainer: pl.Trainer) -> NDArray[np.float64]:
    """Log-odds of the examples, in their order; each process scores its share."""
    share = np.arange(len(examples))[trainer.global_rank :: trainer.world_size]
    mine = [examples[index] for index in share]
    odds = critic.odds([e.knowledge for e in mine], [e.response for e in mine])
    index, odds = gather_rows([share], [odds])
    assert len(index) == len(examples), "every example is scored once"
    return odds
