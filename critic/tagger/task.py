"""The tagger's part of training: its encoder, its module, and what is made of the best checkpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytorch_lightning as pl

from critic.tagger.fit_calibration import Answers, fit_calibration
from critic.tagger.module import TaggerModule
from critic.tagger.predictor import Tagger
from critic.tagger.settings import Settings, tagger_labels
from critic.tagger.span_calibration import SpanCalibration
from critic.weights import check_length
from data_modules.data_module import DataModule
from data_modules.encoding.spans import SpanEncoder
from data_modules.encoding.tokens import load_tokenizer
from faithkit.errors import UserError
from faithkit.evaluation.calibration import check_aim
from faithkit.evaluation.reports.run import Reports, detection_reports
from faithkit.files.jsonl import write_jsonl
from faithkit.files.model_folder import write_folder
from faithkit.files.run_folder import RunFolder
from faithkit.records import Example, Prediction
from faithkit.training.checkpoints import load_best
from faithkit.training.distributed import gather_objects
from faithkit.weights.resolve import resolve


class TaggerTask:
    """Builds what training needs and finishes it; one for each `model=tagger`.

    Args:
        weights: A folder, hub name or local name: an encoder, or a critic or tagger to go on from.
        max_length: Tokens of a window.
        max_windows: Of a longer context, in training and validation; the test reads all.
        typed: A class for each type of hallucination.
        packed: Windows without padding.
        evidence: Tokens are read with their sentence and with the words that the context lacks.
        threshold_aim: What the response threshold is chosen for on validation.
        optimizer: lr, weight_decay, warmup, schedule, floor, layer_decay, head_lr.
    """

    def __init__(
        self,
        *,
        weights: str,
        max_length: int,
        max_windows: int | None,
        typed: bool,
        packed: bool,
        positive_weight: float,
        focal_gamma: float,
        support_weight: float,
        freeze_embeddings: bool,
        dropout: float | None,
        attention_dropout: float | None,
        gradient_checkpointing: bool,
        evidence: bool,
        threshold_aim: str,
        optimizer: Mapping[str, Any],
    ):
        for name, value in (("focal_gamma", focal_gamma), ("support_weight", support_weight)):
            if not value >= 0:
                raise UserError(f"model.{name} is {value}", hint="use 0 (off) or more")
        if not positive_weight > 0:
            raise UserError(f"model.positive_weight is {positive_weight}", hint="use a number above 0; 1 is plain")
        check_aim(threshold_aim)
        self.weights, self.typed, self.threshold_aim, self.evidence = weights, typed, threshold_aim, evidence
        self.module_options = {
            "typed": typed,
            "packed": packed,
            "positive_weight": positive_weight,
            "focal_gamma": focal_gamma,
            "support_weight": support_weight,
            "freeze_embeddings": freeze_embeddings,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "gradient_checkpointing": gradient_checkpointing,
            **optimizer,
        }
        self.tokenizer = load_tokenizer(resolve(weights))
        self.encoder = SpanEncoder(
            tokenizer=self.tokenizer, max_length=max_length, packed=packed, max_windows=max_windows
        )

    def module(self, *, num_steps: int, dataset: str, seed: int) -> TaggerModule:
        """The module to train."""
        module = TaggerModule(
            weights=self.weights, num_steps=num_steps, dataset=dataset, seed=seed, **self.module_options
        )
        check_length(module.model, self.encoder.max_length, self.weights)
        return module

    def finish(
        self,
        trainer: pl.Trainer,
        module: TaggerModule,
        data: DataModule,
        run: RunFolder,
        origin: Mapping[str, Any],
        *,
        num_resamples: int,
        num_examples: int,
    ) -> tuple[Reports, dict[str, Any]]:
        """Calibrates the best checkpoint on validation, predicts the test sets, writes predictions and hf/.

        Returns:
            For each test set its reports, from the first process alone; and the report of the fit.
        """
        from transformers import AutoModelForTokenClassification

        best = load_best(module, run, AutoModelForTokenClassification).to(trainer.strategy.root_device).eval()
        tagger = Tagger(best, replace(self.encoder, max_windows=None), SpanCalibration())
        validation = [e for subset in data.subsets["validation"] for e in subset.examples() if e.spans is not None]
        answers = shared_answers(tagger, validation, trainer)
        tagger.calibration, fit = fit_calibration(answers, validation, self.threshold_aim, use_evidence=self.evidence)
        sets: dict[str, tuple[list[Example], list[Prediction]]] = {}
        for subset in data.subsets["test"]:
            examples = subset.examples()
            mine = range(len(examples))[trainer.global_rank :: trainer.world_size]
            shares = gather_objects(list(tagger.predict_examples([examples[i] for i in mine])))
            by_id = {p.id: p for share in shares for p in share}
            predictions = [by_id[e.id] for e in examples]
            marked = [(e, p) for e, p in zip(examples, predictions, strict=True) if e.label is not None]
            sets[subset.name] = ([e for e, _ in marked], [p for _, p in marked])
            if trainer.is_global_zero and examples:
                write_jsonl(run.predictions / f"{subset.name}.jsonl", (p.to_dict() for p in predictions))
        if not trainer.is_global_zero:
            return {}, fit
        settings = Settings(
            labels=tagger_labels(self.typed),
            max_length=self.encoder.max_length,
            calibration=tagger.calibration,
            origin=dict(origin),
        )
        write_folder(run.hf, best, self.tokenizer, settings.to_sidecar())
        options: dict[str, Any] = {"num_resamples": num_resamples, "num_examples": num_examples}
        fitted_on = [e for subset in data.subsets["validation"] for e in subset.examples()]
        return detection_reports(sets, meta=origin, fitted_on=fitted_on, **options), fit


def shared_answers(tagger: Tagger, examples: Sequence[Example], trainer: pl.Trainer) -> Answers:
    """The answers' tokens with their log-odds and evidence; each process works on a stretch of the examples."""
    bounds = np.linspace(0, len(examples), trainer.world_size + 1).astype(int)
    mine = examples[bounds[trainer.global_rank] : bounds[trainer.global_rank + 1]]
    parts = gather_objects(tagger.answers(mine))
    return Answers.join(parts, np.diff(bounds).tolist())
