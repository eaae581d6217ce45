"""The tagger's training task: its encoder, its module, and the calibration and test of the best checkpoint."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic.tagger.answers import Answers
from critic.tagger.fit_calibration import fit_calibration
from critic.tagger.module import TaggerModule
from critic.tagger.options import TaggerOptions
from critic.tagger.predictor import CHUNK, Tagger
from critic.tagger.settings import Settings, tagger_labels
from critic.tagger.span_calibration import SpanCalibration
from critic.weights import check_length
from data_modules.data_module import Batches, DataModule
from data_modules.encoding.spans import SpanEncoder
from data_modules.encoding.tokens import load_tokenizer
from data_modules.splits import Subset
from faithkit.baselines.simple_detectors import baseline_thresholds
from faithkit.files.model_folder import Sidecar
from faithkit.records import Example, Prediction
from faithkit.reports.write_reports import Reports
from faithkit.span_types import TYPES
from faithkit.training.options import OptimizerOptions, read_options
from faithkit.training.task import FinishedTraining, TestResults, finish_training, report_detector
from faithkit.weights.load import read_config
from faithkit.weights.resolve import loading

log = logging.getLogger("faithkit")

FIT_ROWS = 1500  # of each dataset, where nothing but the calibration learns


class TaggerTask:
    """Trains a tagger: `model=tagger`.

    Args:
        optimizer: The block `optimizer` (`OptimizerOptions`).
        model: The block `model`, of which it takes what `TaggerOptions` names.
        options: The same by name; these win.
    """

    def __init__(self, *, optimizer: Mapping[str, Any], model: Mapping[str, Any] | None = None, **options: Any):
        self.options = read_options(TaggerOptions, model, options)
        self.optimizer = OptimizerOptions(**optimizer)
        with loading(self.options.weights) as source:
            self.tokenizer = load_tokenizer(source)
        self.encoder = SpanEncoder(
            tokenizer=self.tokenizer,
            max_length=self.options.max_length,
            packed=self.options.packed and not self.options.token_support,
            max_windows=self.options.max_windows,
        )

    def module(self, *, num_steps: int, dataset: str, seed: int) -> TaggerModule:
        """The module to train. Where no span of training tells a type there is a class for all of them."""
        if self.options.typed and self.encoder.untyped and not _knows_types(self.options.weights):
            log.info("no marked span of training tells a type, so the tagger learns none: as with model.typed=false")
            self.options = replace(self.options, typed=False)
        module = TaggerModule(self.options, self.optimizer, num_steps=num_steps, dataset=dataset, seed=seed)
        check_length(module.model, self.encoder.max_length, self.options.weights)
        return module

    def finish(self, training: FinishedTraining[DataModule]) -> tuple[Reports, dict[str, Any]]:
        """Calibrates the best checkpoint on validation, predicts the test sets, writes predictions and hf/.

        All windows of a long context are read, as every later use of the model does; training reads `max_windows`.
        """
        return finish_training(training, self)

    @property
    def model_class(self) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification

    def calibrate(self, training: FinishedTraining[DataModule], model: Any) -> tuple[Tagger, dict[str, Any]]:
        """Fits a calibration on the rows of validation that have marked spans."""
        encoder, options = replace(self.encoder, max_windows=None), self.options
        tagger = Tagger(model, encoder, SpanCalibration(), token_support=options.token_support)
        subsets = self._fitted_on(training)
        every = self._known(training)
        marked = [place for place, example in enumerate(every) if example.spans is not None]
        rows, examples = Batches(subsets, self.encoder), [every[i] for i in marked]
        answers = shared_answers(training, tagger, rows, np.array(marked, np.int64), examples)
        tagger.calibration, fit = fit_calibration(
            answers,
            examples,
            options.threshold_aim,
            use_evidence=options.evidence,
            by_tokens=options.token_support,
        )
        return tagger, fit

    def calibrated_on(self, training: FinishedTraining[DataModule]) -> list[Example]:
        """The examples whose marked spans the calibration was fitted on."""
        return [example for example in self._known(training) if example.spans is not None]

    def _known(self, training: FinishedTraining[DataModule]) -> list[Example]:
        return [example for subset in self._fitted_on(training) for example in subset.examples()]

    def _fitted_on(self, training: FinishedTraining[DataModule]) -> list[Subset]:
        """Validation; rows of training too where these have taught nothing yet, of each dataset `FIT_ROWS` at most."""
        unread = training.data.subsets.get("train", ()) if self.options.token_support else ()
        return [*(subset.sample(FIT_ROWS) for subset in unread), *training.data.subsets["validation"]]

    def predict(self, training: FinishedTraining[DataModule], tagger: Tagger, subset: Subset) -> list[Prediction]:
        """A prediction for each row of a test subset."""
        rows, examples = Batches([subset], self.encoder), subset.examples()

        def tag(mine: NDArray[np.int64]) -> list[Prediction]:
            chunks = [mine[begin : begin + CHUNK] for begin in range(0, len(mine), CHUNK)]
            return [p for c in chunks for p in tagger.predict_columns([examples[i] for i in c], rows.columns(c))]

        return training.divide_work(len(examples), tag)

    def sidecar(self, training: FinishedTraining[DataModule], tagger: Tagger) -> Sidecar:
        """The tagger's settings."""
        return Settings(
            labels=tagger_labels(self.options.typed),
            max_length=self.encoder.max_length,
            token_support=self.options.token_support,
            calibration=tagger.calibration,
            origin={**training.origin, **baseline_thresholds(self._known(training))},
        ).to_sidecar()

    def report(self, training: FinishedTraining[DataModule], tagger: Tagger, tests: TestResults) -> Reports:
        """Writes the predictions, and compares them with the labels."""
        parts = "training and validation" if self.options.token_support else "validation"
        return report_detector(training, tests, fitted_on=self._known(training), parts=parts)


def _knows_types(weights: str) -> bool:
    """Tells whether weights are those of a tagger that has learnt types already."""
    with loading(weights) as source:
        return set(TYPES) <= set((read_config(source).get("id2label") or {}).values())


def shared_answers(
    training: FinishedTraining[DataModule],
    tagger: Tagger,
    rows: Batches,
    wanted: NDArray[np.int64],
    examples: list[Example],
) -> Answers:
    """The tokens of the wanted rows' answers with log-odds and evidence; each process works on one shard of the rows.

    Args:
        examples: Those of the wanted rows.
    """
    num_shards = training.trainer.world_size
    bounds = np.linspace(0, len(wanted), num_shards + 1).astype(int)

    def read(shards: NDArray[np.int64]) -> list[Answers]:
        found = []
        for own in (slice(bounds[number], bounds[number + 1]) for number in shards):
            chunks = [wanted[own][begin : begin + CHUNK] for begin in range(0, len(wanted[own]), CHUNK)]
            found.append(tagger.answers(examples[own], [rows.columns(chunk) for chunk in chunks]))
        return found

    return Answers.join(training.divide_work(num_shards, read), np.diff(bounds).tolist())
