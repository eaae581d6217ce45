"""Converts a tagger's log-odds to probabilities, spans and labels; fitted on validation, stored with the weights."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from critic.logistic import linear, sigmoid
from critic.tagger.calibration_features import RESPONSE_EVIDENCE, TOKEN_EVIDENCE, Words, token_evidence
from critic.tagger.find_spans import FoundSpans, find_spans, match_labels
from faithkit.arguments import check_number, check_numbers, check_text
from faithkit.calibration.score_calibration import ABOVE_ALL_SCORES
from faithkit.errors import UserError

MAX_WEIGHT, MAX_CHARACTERS = 1e6, 100_000  # far above fitted values
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCalibration:
    """Parameters and steps of a tagger's calibration.

    Args:
        slope: Calibrated log-odds of a token are `slope * log-odds + bias` (Platt scaling).
        token_weights: Weights of TOKEN_EVIDENCE (`critic.tagger.calibration_features`) and a bias, which replace slope
            and bias; may be empty.
        char_threshold: Calibrated probability from which characters of a hallucinated response are marked.
        merge_gap: Spans with at most this many characters between them are merged.
        min_length: Spans with fewer characters are dropped.
        response_weights: Weights of RESPONSE_EVIDENCE and a bias, for calibrated log-odds of a response. If empty, a
            response has the probability of its most probable token.
        response_threshold: Probability from which a response is labelled hallucinated.
        aim: Metric that the response threshold was chosen for.
    """

    slope: float = 1.0
    bias: float = 0.0
    token_weights: tuple[float, ...] = ()
    char_threshold: float = 0.5
    merge_gap: int = 0
    min_length: int = 1
    response_weights: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 0.0)
    response_threshold: float = 0.5
    aim: str = "none: nothing was fitted"

    def __post_init__(self) -> None:
        for name, evidence in (("token_weights", TOKEN_EVIDENCE), ("response_weights", RESPONSE_EVIDENCE)):
            weights = getattr(self, name)
            check_numbers(name, weights, -MAX_WEIGHT, MAX_WEIGHT)
            object.__setattr__(self, name, tuple(float(weight) for weight in weights))
            if len(weights) not in (0, len(evidence) + 1):
                raise UserError(f"{name} has {len(weights)} numbers, and needs {len(evidence) + 1}")
        for name in ("slope", "bias"):
            check_number(name, getattr(self, name), -MAX_WEIGHT, MAX_WEIGHT)
        check_number("char_threshold", self.char_threshold, 0, 1)
        check_number("response_threshold", self.response_threshold, 0, ABOVE_ALL_SCORES)
        check_number("merge_gap", self.merge_gap, 0, MAX_CHARACTERS, whole=True)
        check_number("min_length", self.min_length, 1, MAX_CHARACTERS, whole=True)
        check_text("aim", self.aim)

    def probabilities(self, odds: Floats, words: Words | None = None) -> Floats:
        """Computes the calibrated P(hallucinated) of tokens."""
        if not self.token_weights:
            return sigmoid(self.slope * odds + self.bias)
        assert words is not None, "this calibration uses the words too"
        return sigmoid(linear(token_evidence(odds, words), self.token_weights))

    def spans(
        self,
        words: Words,
        probability: Floats,
        owner: Ints,
        is_hallucinated: NDArray[np.bool_] | None = None,
        char_threshold: float | None = None,
    ) -> FoundSpans:
        """Finds spans of whole words above the threshold, merged and filtered; they match the labels if given.

        Args:
            words: The word boundaries of each token.
            probability: Calibrated probability of each token.
            owner: The response of each token.
            is_hallucinated: The label of each response [responses]; None ignores labels.
            char_threshold: Replaces the stored threshold.
        """
        found = find_spans(
            words.begin,
            words.stop,
            probability,
            threshold=self.char_threshold if char_threshold is None else char_threshold,
            merge_gap=self.merge_gap,
            min_length=self.min_length,
            owner=owner,
        )
        if is_hallucinated is None:
            return found
        return match_labels(found, is_hallucinated, words.begin, words.stop, probability, owner)

    def is_hallucinated(self, scores: Floats, threshold: float | None = None) -> NDArray[np.bool_]:
        """Returns which responses are labelled hallucinated, by the stored threshold or another one."""
        return scores >= (self.response_threshold if threshold is None else threshold)

    def response_scores(self, evidence: Floats, worst: Floats) -> Floats:
        """Computes P(response is hallucinated) from RESPONSE_EVIDENCE [responses, 4], or takes its highest token."""
        if not self.response_weights:
            return worst
        return sigmoid(linear(evidence, self.response_weights))
