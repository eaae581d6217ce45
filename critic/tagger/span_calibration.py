"""Turns a tagger's log-odds into probabilities, spans and labels; fitted on validation, stored beside the weights."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from critic.logistic import linear, sigmoid
from critic.tagger.evidence import RESPONSE_EVIDENCE, TOKEN_EVIDENCE, Words, token_evidence
from critic.tagger.find_spans import Found, agreeing, find_spans
from faithkit.calibration.score_calibration import ABOVE_ALL_SCORES
from faithkit.checks import check_number, check_numbers, check_text
from faithkit.errors import UserError

MAX_WEIGHT, MAX_CHARACTERS = 1e6, 100_000  # far beyond what a fit gives
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCalibration:
    """The parameters of a tagger's calibration, and the steps that use them.

    Args:
        slope: Calibrated log-odds of a token are `slope * log-odds + bias` (Platt scaling).
        token_weights: Weights of TOKEN_EVIDENCE (`critic.tagger.evidence`), then a bias, instead of slope and bias;
            empty where those are used.
        char_threshold: Characters of a hallucinated response are marked from this calibrated probability on.
        merge_gap: Spans with at most so many characters between them become one.
        min_length: Spans of fewer characters are dropped.
        response_weights: Weights of RESPONSE_EVIDENCE, then a bias; they give calibrated log-odds. Empty: a response
            is as likely hallucinated as its likeliest token.
        response_threshold: A response is called hallucinated from this probability on.
        aim: What the response threshold was chosen for.
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
                raise UserError(f"{name} has {len(weights)} numbers, wanted {len(evidence) + 1}")
        for name in ("slope", "bias"):
            check_number(name, getattr(self, name), -MAX_WEIGHT, MAX_WEIGHT)
        check_number("char_threshold", self.char_threshold, 0, 1)
        check_number("response_threshold", self.response_threshold, 0, ABOVE_ALL_SCORES)
        check_number("merge_gap", self.merge_gap, 0, MAX_CHARACTERS, whole=True)
        check_number("min_length", self.min_length, 1, MAX_CHARACTERS, whole=True)
        check_text("aim", self.aim)

    def probabilities(self, odds: Floats, words: Words | None = None) -> Floats:
        """Calibrated P(hallucinated) of tokens."""
        if not self.token_weights:
            return sigmoid(self.slope * odds + self.bias)
        assert words is not None, "this calibration uses the words too"
        return sigmoid(linear(token_evidence(odds, words), self.token_weights))

    def spans(
        self,
        words: Words,
        probability: Floats,
        owner: Ints,
        called: NDArray[np.bool_] | None = None,
        char_threshold: float | None = None,
    ) -> Found:
        """The spans above the threshold, of whole words, smoothed; they agree with the labels where these are given.

        Args:
            words: Where the words of each token begin and end.
            probability: Of each token, calibrated.
            owner: The response of each token.
            called: Which responses are called hallucinated [responses]; None marks each by its characters alone.
            char_threshold: In place of the stored one.
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
        return found if called is None else agreeing(found, called, words.begin, words.stop, probability, owner)

    def called(self, scores: Floats, threshold: float | None = None) -> NDArray[np.bool_]:
        """Which responses are called hallucinated, by the stored threshold or by another."""
        return scores >= (self.response_threshold if threshold is None else threshold)

    def response_scores(self, evidence: Floats, worst: Floats) -> Floats:
        """P(response is hallucinated): from RESPONSE_EVIDENCE [responses, 4], or its likeliest token's."""
        if not self.response_weights:
            return worst
        return sigmoid(linear(evidence, self.response_weights))
