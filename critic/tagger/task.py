"""The tagger's training task: encoder, module, and calibration and test of the best checkpoint."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic.requests import request_of
from critic.tagger.fit_calibration import fit_calibration
from critic.tagger.module import TaggerModule
from critic.tagger.options import TaggerOptions
from critic.tagger.predictor import RESPONSES_AT_ONCE, Tagger
from critic.tagger.span_calibration import Answers, Settings, SpanCalibration, tagger_labels
from critic.weights import find_head, rescale_head
from data_modules.data_module import Batches, DataModule
from data_modules.encoding.encoder import Subset
from data_modules.encoding.span_encoder import SpanEncoder
from data_modules.encoding.tokens import load_tokenizer
from faithkit.baselines.simple_detectors import baseline_thresholds
from faithkit.fast import is_enabled
from faithkit.records import SPAN_TYPES, Prediction
from faithkit.reports.write_reports import Reports
from faithkit.training.task import Calibrated, FinishedTraining, TestResults, report_detector
from faithkit.training.training_options import OptimizerOptions, read_options
from faithkit.weights.load import read_config
from faithkit.weights.resolve import loading

log = logging.getLogger("faithkit")

FIT_ROWS = 1500  # of each dataset, if nothing but the calibration is fitted


class TaggerTask:
    """Trains a tagger: `model=tagger`.

    Args:
        optimizer: The block `optimizer` (`OptimizerOptions`).
        model: The block `model`; the fields of `TaggerOptions` are read.
    """

    def __init__(self, *, optimizer: Mapping[str, Any], model: Mapping[str, Any]):
        self.options = read_options(TaggerOptions, model)
        self.optimizer = OptimizerOptions(**optimizer)
        with loading(self.options.weights) as source:
            self.tokenizer = load_tokenizer(source)
        self.encoder = SpanEncoder(
            tokenizer=self.tokenizer,
            max_length=self.options.max_length,
            packed=self.options.packed and is_enabled() and not self.options.token_support,
            max_windows=self.options.train_windows,
        )
        self.reader = replace(self.encoder, max_windows=self.options.max_windows)

    def module(self, *, num_steps: int, dataset: str, seed: int) -> TaggerModule:
        """Builds the module to train; without types in the training spans it has a single class."""
        if self.options.typed and self.encoder.untyped:
            with loading(self.options.weights) as source:
                labels = (read_config(source).get("id2label") or {}).values()
            if not set(SPAN_TYPES) <= set(labels):
                log.info("no training span has a type: training with model.typed=false")
                self.options = replace(self.options, typed=False)
        return TaggerModule(self.options, self.optimizer, num_steps=num_steps, dataset=dataset, seed=seed)

    @property
    def model_class(self) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification

    def calibrate(self, training: FinishedTraining[DataModule], model: Any) -> Calibrated[Tagger]:
        """Fits a calibration on the rows of validation with annotated spans.

        A calibration that is linear in the log-odds of a token becomes part of the head.
        """
        options = self.options
        tagger = Tagger(model, self.reader, SpanCalibration(), token_support=options.token_support)
        subsets = self._fitting_subsets(training)
        rows, candidates = Batches(subsets, self.encoder), [one for subset in subsets for one in subset.examples()]
        annotated = [number for number, example in enumerate(candidates) if example.spans is not None]
        examples = [candidates[number] for number in annotated]
        num_shards = training.trainer.world_size  # each process computes one
        bounds = np.linspace(0, len(examples), num_shards + 1).astype(int)

        def compute_shards(shards: NDArray[np.int64]) -> list[Answers]:
            found = []
            for begin, end in ((bounds[shard], bounds[shard + 1]) for shard in shards):
                numbers = np.array(annotated[begin:end], np.int64)
                starts = range(0, len(numbers), RESPONSES_AT_ONCE)
                columns = (rows.columns(numbers[start : start + RESPONSES_AT_ONCE]) for start in starts)
                found.append(tagger.answers([request_of(one) for one in examples[begin:end]], columns))
            return found

        tagger.calibration, fit = fit_calibration(
            Answers.join(training.divide_work(num_shards, compute_shards)),
            examples,
            options.threshold_aim,
            use_evidence=options.evidence,
            by_tokens=options.token_support,
        )
        written, head = tagger.calibration, tuple[float, ...]()
        is_linear = not (options.token_support or written.token_weights or model.config.num_labels > 2)
        if is_linear and find_head(model).bias is not None:
            head, written = (written.slope, written.bias), replace(written, slope=1.0, bias=0.0)
        settings = Settings(
            labels=tagger_labels(options.typed),
            max_length=self.encoder.max_length,
            max_windows=self.reader.max_windows,
            token_support=options.token_support,
            head=head,
            calibration=written,
            origin={**training.origin, **baseline_thresholds(candidates)},
        )
        return Calibrated(
            predictor=tagger,
            sidecar=settings.to_sidecar(),
            examples=examples,
            fit=fit,
            finish_model=lambda model: rescale_head(model, *head) if head else None,
        )

    def _fitting_subsets(self, training: FinishedTraining[DataModule]) -> list[Subset]:
        """Returns validation, and rows of training if nothing was trained on these, at most `FIT_ROWS` per dataset."""
        unused = training.data.subsets.get("train", ()) if self.options.token_support else ()
        return [*(subset.sample(FIT_ROWS) for subset in unused), *training.data.subsets["validation"]]

    def predict(self, training: FinishedTraining[DataModule], tagger: Tagger, subset: Subset) -> list[Prediction]:
        """Predicts each row of a test subset."""
        rows, examples = Batches([subset], self.encoder), subset.examples()

        def predict_part(part: NDArray[np.int64]) -> list[Prediction]:
            chosen, starts = [examples[number] for number in part], range(0, len(part), RESPONSES_AT_ONCE)
            columns = (rows.columns(part[start : start + RESPONSES_AT_ONCE]) for start in starts)
            tagged = tagger.tag([request_of(example) for example in chosen], columns)
            return [replace(one, id=example.id) for example, one in zip(chosen, tagged, strict=True)]

        return training.divide_work(len(examples), predict_part)

    def report(
        self,
        training: FinishedTraining[DataModule],
        calibrated: Calibrated[Tagger],
        tests: TestResults[Prediction],
    ) -> Reports:
        """Writes the predictions, and compares them with the labels."""
        parts = "training and validation" if self.options.token_support else "validation"
        fitted_on = [one for subset in self._fitting_subsets(training) for one in subset.examples()]
        return report_detector(training, tests, fitted_on=fitted_on, parts=parts)
