"""The critic's training task: its encoder, its module, and the calibration and test of the best checkpoint."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic.evidence import WEIGHTS, fit_evidence, stack_evidence
from critic.logistic import linear
from critic.module import CriticModule
from critic.options import CriticOptions
from critic.scorer import CHUNK, Critic
from critic.settings import Settings
from critic.weights import check_length
from data_modules.data_module import Batches, DataModule
from data_modules.encoding.pairs import NO_LABEL, PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from data_modules.splits import Subset
from faithkit.evaluation.cheap_baselines import MAX_ROWS, fit_counted
from faithkit.evaluation.fitted_baselines import fitted_origin
from faithkit.evaluation.reports.run import Reports
from faithkit.evaluation.score_calibration import ScoreCalibration
from faithkit.files.model_folder import Sidecar
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit.training.options import OptimizerOptions, read_options
from faithkit.training.task import FinishedTraining, TestResults, finish_training, report_detector
from faithkit.weights.resolve import loading


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
            evidence=self.options.evidence,
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
        """Fits the weights of evidence, temperature and threshold on the labelled rows of validation."""
        critic = Critic(model, self.encoder, ScoreCalibration())
        rows = Batches(training.data.subsets["validation"], self.encoder)
        wanted = np.flatnonzero(rows.lengths("label") != NO_LABEL)
        odds = shared_odds(training, critic, rows, wanted)
        known = labelled(training.validation)
        gold = np.array([example.label == HALLUCINATED for example in known], np.int8)
        note = ""
        if self.options.evidence:
            evidence = stack_evidence(odds, rows.columns(wanted))
            critic.weights, note = fit_evidence(evidence, gold, [example.source for example in known])
            odds = linear(evidence, critic.weights)
        critic.calibration, fit = ScoreCalibration.fit(odds, gold, self.options.threshold_aim)
        if self.options.evidence:
            fit["evidence"] = {"weights": dict(zip(WEIGHTS, critic.weights, strict=True)), "note": note}
        return critic, fit

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
            origin={**training.origin, **fitted_origin(labelled(training.validation))},
        ).to_sidecar()

    def report(self, training: FinishedTraining[DataModule], critic: Critic, tests: TestResults) -> Reports:
        """Writes the predictions, and compares them with the labels."""
        fitted_on = self.calibrated_on(training)
        counted = fit_counted(training.training_sample(MAX_ROWS), fitted_on, aim=self.options.threshold_aim)
        return report_detector(training, tests, fitted_on=fitted_on, counted=counted)


def labelled(examples: Sequence[Example]) -> list[Example]:
    """The examples that have a label."""
    return [example for example in examples if example.label is not None]


def shared_odds(
    training: FinishedTraining[DataModule], critic: Critic, rows: Batches, wanted: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Log-odds of the wanted rows, in their order, from their cached tokens; each process scores its share."""

    def score(mine: NDArray[np.int64]) -> list[float]:
        chunks = [wanted[mine[begin : begin + CHUNK]] for begin in range(0, len(mine), CHUNK)]
        return [float(odds) for chunk in chunks for odds in critic.column_odds(rows.columns(chunk))]

    return np.array(training.divide_work(len(wanted), score))
