"""Leaves out verdicts that a detector is unsure of: it then says "cannot tell" rather than guess."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from faithkit.records import HALLUCINATED, LABELS, Prediction


def confidence_of(label: str | None, probability: float) -> float:
    """Gives the probability that a label is right, by the detector's own P(hallucinated)."""
    return probability if label == HALLUCINATED else 1 - probability


def is_unsure(label: str | None, probability: float, abstain_at: float | None) -> bool:
    """Tells whether a label is likely to be right with less than the wanted probability; None wants none."""
    return abstain_at is not None and confidence_of(label, probability) < abstain_at


def without_unsure(predictions: Iterable[Prediction], abstain_at: float | None) -> Iterator[Prediction]:
    """Takes label and spans from predictions that are unsure; their probability stays.

    Predictions without a probability keep their label: nothing says how sure they are.
    """
    for prediction in predictions:
        label, score = prediction.label, prediction.score
        unsure = label in LABELS and score is not None and is_unsure(label, score, abstain_at)
        yield replace(prediction, label=None, spans=()) if unsure else prediction
