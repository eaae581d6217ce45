"""The critic's training task: its encoder, its module, and the calibration and test of the best checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic.logistic import linear
from critic.sequence.evidence import NAMES, fit_evidence
from critic.sequence.module import CriticModule
from critic.sequence.options import CriticOptions
from critic.sequence.scorer import CHUNK, Critic
from critic.sequence.settings import Settings
from critic.weights import check_length
from data_modules.data_module import Batches, DataModule
from data_modules.encoding.pairs import NO_LABEL, PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from data_modules.splits import Subset
from faithkit.baselines.counted_features import MAX_ROWS, fit_counted_features
from faithkit.baselines.simple_detectors import baseline_thresholds
from faithkit.calibration.score_calibration import ScoreCalibration
from faithkit.errors import UserError
from faithkit.files.model_folder import Sidecar
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit.reports.write_reports import Reports
from faithkit.training.options import OptimizerOptions, read_options
from faithkit.training.task import FinishedTraining, TestResults, finish_training, report_detector
from faithkit.weights.resolve import loading

FIT_ROWS = 1500  # of each dataset, that the weights of evidence alone are fitted on: ten numbers need no more


class CriticTask:
    """Trains a critic: `model=critic`.

    Args:
        optimizer: The block `optimizer` (`OptimizerOptions`).
        model: The block `model`, of which it takes what `CriticOptions` names.
        options: The same by name; these win.
    """

    def __init__(self, *, optimizer: Mapping[str, Any], model: Mapping[str, Any] | None = None, **options: Any):
        self.options = read_options(CriticOptions, model, options)
        self.optimizer = OptimizerOptions(**optimizer)
        with loading(self.options.weights) as source:
            self.tokenizer = load_tokenizer(source)
        self.encoder = PairEncoder(
            tokenizer=self.tokenizer,
            max_length=self.options.max_length,
            order=self.options.order,
            marked=bool(self.options.span_weight),
            max_knowledge_words=self.options.max_knowledge_words,
            evidence=bool(self.options.evidence),
            whole=self.options.reads_tokens,
        )

    def module(self, *, num_steps: int, dataset: str, seed: int) -> CriticModule:
        """The module to train."""
        module = CriticModule(self.options, self.optimizer, num_steps=num_steps, dataset=dataset, seed=seed)
        check_length(module.model, self.encoder.max_length, self.options.weights)
        return module

    def finish(self, training: FinishedTraining[DataModule]) -> tuple[Reports, dict[str, Any]]:
        """Calibrates the best checkpoint on validation, predicts the test sets, writes predictions and hf/.

        Validation and test are read as every later use of the model reads its texts: windows over long knowledge
        included.
        """
        return finish_training(training, self)

    @property
    def model_class(self) -> Any:
        from transformers import AutoModelForSequenceClassification

        return AutoModelForSequenceClassification

    def calibrate(self, training: FinishedTraining[DataModule], model: Any) -> tuple[Critic, dict[str, Any]]:
        """Fits temperature and threshold on the labelled rows of validation; there the weights of evidence too.

        Evidence alone has learnt from no row yet, so its weights are fitted on rows of training.
        """
        critic = Critic(model, self.encoder, ScoreCalibration())
        rows = Batches(training.data.subsets["validation"], self.encoder)
        wanted = np.flatnonzero(rows.lengths("label") != NO_LABEL)
        known = labelled(training.validation)
        gold = np.array([example.label == HALLUCINATED for example in known], np.int8)
        note = ""
        if self.options.evidence_alone:
            critic.weights, note = self._fit_alone(training, critic)
            odds = shared_odds(training, critic, rows, wanted)
        elif self.options.evidence:
            evidence = shared_evidence(training, critic, rows, wanted)
            critic.weights, note = fit_evidence(evidence, gold, [example.source for example in known])
            odds = linear(evidence, critic.weights)
        else:
            odds = shared_odds(training, critic, rows, wanted)
        critic.calibration, fit = ScoreCalibration.fit(odds, gold, self.options.threshold_aim)
        if self.options.evidence:
            fit["evidence"] = {
                "weights": dict(zip(NAMES[len(critic.weights)], critic.weights, strict=True)),
                "note": note,
            }
        return critic, fit

    def _fit_alone(self, training: FinishedTraining[DataModule], critic: Critic) -> tuple[tuple[float, ...], str]:
        """Fits the weights of evidence on rows of training: of each dataset as many as `FIT_ROWS`, by seed."""
        subsets = training.data.subsets.get("train", ())
        if not subsets:
            problem = "model.evidence_alone=true learns from rows of training, which data.streaming=true does not keep"
            raise UserError(problem, hint="set data.streaming=false")
        sampled = [own.sample(FIT_ROWS) for subset in subsets if len(own := with_labels(subset))]
        if not sampled:
            problem = "model.evidence_alone=true learns from labels, and no row of training has one"
            raise UserError(problem, hint="set model.evidence_alone=false, which weak labels are enough for")
        rows = Batches(sampled, self.encoder)
        known = [example for subset in sampled for example in subset.examples()]
        gold = np.array([example.label == HALLUCINATED for example in known], np.int8)
        evidence = shared_evidence(training, critic, rows, np.arange(len(rows)), own=False)
        return fit_evidence(evidence, gold, [example.source for example in known], own=False)

    def calibrated_on(self, training: FinishedTraining[DataModule]) -> list[Example]:
        """The labelled examples of validation."""
        return labelled(training.validation)

    def predict(self, training: FinishedTraining[DataModule], critic: Critic, subset: Subset) -> list[Prediction]:
        """A prediction for each row of a test subset."""
        rows = Batches([subset], self.encoder)
        scores = critic.calibration.scores(shared_odds(training, critic, rows, np.arange(len(rows))))
        return critic.calibration.predictions([example.id for example in subset.examples()], scores)

    def sidecar(self, training: FinishedTraining[DataModule], critic: Critic) -> Sidecar:
        """The critic's settings."""
        return Settings(
            max_length=self.encoder.max_length,
            order=self.encoder.order,
            max_knowledge_words=self.encoder.max_knowledge_words,
            evidence=critic.weights,
            calibration=critic.calibration,
            origin={**training.origin, **baseline_thresholds(labelled(training.validation))},
        ).to_sidecar()

    def report(self, training: FinishedTraining[DataModule], critic: Critic, tests: TestResults) -> Reports:
        """Writes the predictions, and compares them with the labels."""
        fitted_on = self.calibrated_on(training)
        counted = fit_counted_features(training.training_sample(MAX_ROWS), fitted_on, aim=self.options.threshold_aim)
        return report_detector(training, tests, fitted_on=fitted_on, counted=counted)


def with_labels(subset: Subset) -> Subset:
    """The rows of a subset that have a label."""
    label = np.asarray(subset.encoded.columns["label"])[subset.indices]
    return replace(subset, indices=subset.indices[label != NO_LABEL])


def labelled(examples: Sequence[Example]) -> list[Example]:
    """The examples that have a label."""
    return [example for example in examples if example.label is not None]


def shared_odds(
    training: FinishedTraining[DataModule], critic: Critic, rows: Batches, wanted: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Log-odds of the wanted rows, in their order, from their cached tokens; each process scores its share."""
    return _shared(training, rows, wanted, critic.column_odds)


def shared_evidence(
    training: FinishedTraining[DataModule],
    critic: Critic,
    rows: Batches,
    wanted: NDArray[np.int64],
    *,
    own: bool = True,
) -> NDArray[np.float64]:
    """Evidence of the wanted rows [rows, features], likewise; without `own` the encoder reads no pairs."""
    return _shared(training, rows, wanted, partial(critic.evidence, own=own))


def _shared(
    training: FinishedTraining[DataModule],
    rows: Batches,
    wanted: NDArray[np.int64],
    read: Callable[[Mapping[str, Any]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    def share(mine: NDArray[np.int64]) -> list[Any]:
        chunks = [wanted[mine[begin : begin + CHUNK]] for begin in range(0, len(mine), CHUNK)]
        return [found for chunk in chunks for found in read(rows.columns(chunk)).tolist()]

    return np.array(training.divide_work(len(wanted), share))
