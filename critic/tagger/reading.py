"""How a tagger's log-odds are read: calibration, thresholds and smoothing, fitted on validation and stored with it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.records import FAITHFUL, HALLUCINATED
from critic.tagger.decode import Found, find_spans

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """From log-odds of tokens to spans, and to P(the response is hallucinated).

    Args:
        slope: Of the line that turns a token's log-odds into calibrated ones; `bias` is its other half.
        char_threshold: Characters are called hallucinated from this calibrated probability on.
        merge_gap: Spans with at most so many characters between them become one.
        min_length: Spans of fewer characters are dropped.
        response_weights: Of the response's two features (`response_features`), and a bias, in log-odds.
        response_threshold: A response is called hallucinated from here on.
        aim: What the response threshold was chosen for.
    """

    slope: float = 1.0
    bias: float = 0.0
    char_threshold: float = 0.5
    merge_gap: int = 0
    min_length: int = 1
    response_weights: tuple[float, float, float] = (1.0, 0.0, 0.0)
    response_threshold: float = 0.5
    aim: str = "none: nothing was fitted"

    def probabilities(self, odds: Floats) -> Floats:
        """Calibrated P(hallucinated) of tokens."""
        return sigmoid(self.slope * odds + self.bias)

    def spans(self, start: Ints, end: Ints, probability: Floats, owner: Ints | None = None) -> Found:
        return find_spans(
            start,
            end,
            probability,
            threshold=self.char_threshold,
            merge_gap=self.merge_gap,
            min_length=self.min_length,
            owner=owner,
        )

    def response_scores(self, features: Floats) -> Floats:
        """P(the response is hallucinated) from features [responses, 2]."""
        *weights, bias = self.response_weights
        return sigmoid(features @ np.array(weights) + bias)

    def label(self, score: float) -> str:
        return HALLUCINATED if score >= self.response_threshold else FAITHFUL


def response_features(probability: Floats, characters: Ints, owner: Ints, num_responses: int) -> Floats:
    """Of each response the log-odds of its worst token, and how many characters are expected to be wrong [N, 2].

    Args:
        probability: Calibrated, of each token.
        characters: How many each token stands for; tokens that stand for none do not count.
        owner: The response of each token.
    """
    counted = characters > 0
    clipped = np.clip(probability[counted], 1e-6, 1 - 1e-6)
    worst = np.full(num_responses, -14.0)  # the least that the clipping leaves: of a response without a visible token
    np.maximum.at(worst, owner[counted], np.log(clipped) - np.log1p(-clipped))
    expected = np.bincount(owner[counted], clipped * characters[counted], num_responses)
    return np.stack([worst, np.log1p(expected)], axis=1)


def sigmoid(values: Any) -> Floats:
    return np.exp(-np.logaddexp(0.0, -np.asarray(values, np.float64)))
