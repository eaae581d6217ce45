"""Turns a critic's logits into calibrated probabilities and labels; fitted on validation, stored with the weights."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from faithkit.calibration.thresholds import (
    apply_temperature,
    calibration_error,
    choose_threshold,
    fit_temperature,
    logit,
)
from faithkit.records import FAITHFUL, HALLUCINATED, LABELS, Prediction
from faithkit.settings.check import options
from faithkit.settings.types import Hint, Range

IS_HALLUCINATED = tuple(label == HALLUCINATED for label in LABELS)  # of the classes, those that mean hallucinated
ABOVE_ALL_SCORES = float(np.nextafter(1, 2))  # the threshold of a fit that calls nothing, not even a probability of 1
MARGIN = 1e-5  # of log-odds, above their rounding in fp32
ResponseThreshold = Annotated[float, Range(ge=0, le=ABOVE_ALL_SCORES), Hint("use a number from 0 to 1")]


@options()
class ScoreCalibration:
    """The temperature and the threshold of a critic.

    Args:
        temperature: Divides the log-odds; above 1 it moves probabilities towards 1/2.
        threshold: A response is called hallucinated from this probability on.
        aim: The metric that the threshold was chosen for.
    """

    temperature: Annotated[float, Range(ge=1e-3, le=1e3)] = 1.0  # far beyond what a fit gives
    threshold: ResponseThreshold = 0.5
    aim: str = "none: nothing was fitted"

    @classmethod
    def fit(cls, odds: NDArray[Any], labels: NDArray[Any], aim: str) -> tuple["ScoreCalibration", dict[str, Any]]:
        """Fits both on the log-odds of labelled validation rows; also gives what to report of the fit."""
        temperature = fit_temperature(odds, labels)
        scores = apply_temperature(odds, temperature.value)
        threshold = choose_threshold(scores, labels, aim)
        report = {
            "temperature": asdict(temperature),
            "threshold": asdict(threshold),
            "ece_before": calibration_error(apply_temperature(odds, 1.0), labels),
            "ece_after": calibration_error(scores, labels),
            "num_rows": len(labels),
        }
        return cls(temperature=temperature.value, threshold=threshold.value, aim=aim), report

    def line(self, odds: NDArray[Any]) -> tuple[float, float]:
        """Returns slope and bias that move the threshold to a probability of 0.5, with the same labels of these rows.

        P = sigmoid(slope * log-odds + bias): the slope is 1 / temperature, the bias subtracts the threshold's log-odds.
        """
        scaled, called = odds / self.temperature, self.scores(odds) >= self.threshold
        lowest = scaled[~called].max(initial=-np.inf) + MARGIN  # matters where probabilities round to 0 or 1
        highest = scaled[called].min(initial=np.inf) - MARGIN
        return 1 / self.temperature, -float(np.clip(logit(self.threshold), lowest, highest))

    def scores(self, odds: NDArray[Any]) -> NDArray[np.float64]:
        """P(hallucinated) of each row, from its log-odds."""
        return apply_temperature(odds, self.temperature)

    def label(self, score: float, threshold: float | None = None) -> str:
        """hallucinated or faithful, by the stored threshold or by another."""
        return HALLUCINATED if score >= (self.threshold if threshold is None else threshold) else FAITHFUL

    def predictions(self, ids: Sequence[str], scores: Iterable[float]) -> list[Prediction]:
        """A prediction for each probability."""
        return [Prediction(id=i, label=self.label(s), score=float(s)) for i, s in zip(ids, scores, strict=True)]


def log_odds(logits: NDArray[Any], hallucinated: Sequence[bool] = IS_HALLUCINATED) -> NDArray[np.float64]:
    """Log-odds of hallucinated from the logits of each row [rows, classes].

    Args:
        hallucinated: Which classes mean it; the others mean faithful.
    """
    values, chosen = np.asarray(logits, np.float64), np.array(hallucinated)
    return np.logaddexp.reduce(values[:, chosen], axis=1) - np.logaddexp.reduce(values[:, ~chosen], axis=1)


def is_unsure(label: str | None, probability: float, abstain_at: float | None) -> bool:
    """Checks whether a label is less likely to be right than required; None requires nothing."""
    confidence = probability if label == HALLUCINATED else 1 - probability
    return abstain_at is not None and confidence < abstain_at


def drop_unsure_labels(predictions: Iterable[Prediction], abstain_at: float | None) -> Iterator[Prediction]:
    """Takes label and spans from predictions that are unsure; their probability stays.

    Predictions without a probability keep their label: nothing says how sure they are.
    """
    for prediction in predictions:
        label, score = prediction.label, prediction.score
        unsure = label in LABELS and score is not None and is_unsure(label, score, abstain_at)
        yield replace(prediction, label=None, spans=()) if unsure else prediction
