"""Converts a tagger's log-odds to probabilities, spans and labels; fitted on validation, stored with the weights."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from critic.logistic import linear, sigmoid
from critic.tagger.calibration_features import RESPONSE_EVIDENCE, TOKEN_EVIDENCE, Answers
from faithkit.calibration import ResponseThreshold
from faithkit.settings.check import options
from faithkit.settings.types import Range, Share, Sizes, Weight, Weights

MAX_CHARACTERS = 100_000  # far above fitted values
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FoundSpans:
    """Spans in the order of the text [spans each].

    Args:
        start: First character.
        end: After the last character.
        first: First token.
        last: Last token.
    """

    start: Ints
    end: Ints
    first: Ints
    last: Ints


def match_labels(
    found: FoundSpans,
    is_hallucinated: NDArray[np.bool_],
    start: Ints,
    end: Ints,
    probability: Floats,
    owner: Ints,
) -> FoundSpans:
    """Makes spans agree with labels: no span in a faithful text, at least one in each hallucinated text.

    A hallucinated text without a span gets its most probable token, if it has visible tokens.

    Args:
        is_hallucinated: The label of each text [texts].
        start, end, probability, owner: As for `find_spans`.
    """
    kept = is_hallucinated[owner[found.first]]
    lacks_span = is_hallucinated.copy()
    lacks_span[owner[found.first]] = False
    # The visible tokens of these texts, the most probable first; the first of each text is taken.
    tokens = np.flatnonzero(lacks_span[owner] & (end > start))
    tokens = tokens[np.lexsort((-probability[tokens], owner[tokens]))]
    tokens = tokens[np.flatnonzero(np.diff(owner[tokens], prepend=-1))]
    first, last = np.append(found.first[kept], tokens), np.append(found.last[kept], tokens)
    order = np.argsort(first, kind="stable")
    begins, stops = np.append(found.start[kept], start[tokens]), np.append(found.end[kept], end[tokens])
    return FoundSpans(begins[order], stops[order], first[order], last[order])


def find_spans(
    start: Ints,
    end: Ints,
    probability: Floats,
    *,
    threshold: float,
    merge_gap: int = 0,
    min_length: int = 1,
    owner: Ints | None = None,
) -> FoundSpans:
    """Finds runs of tokens with at least the threshold, including the white space between them.

    Args:
        start: First character of each token, in order; equal to `end` for a token without characters.
        merge_gap: Spans with at most this many characters between them become one.
        min_length: Spans of fewer characters are dropped, after merging.
        owner: The text of each token; a span never crosses texts.
    """
    visible = np.flatnonzero(end > start)
    above = np.flatnonzero(probability[visible] >= threshold)
    if not len(above):
        empty = np.zeros(0, np.int64)
        return FoundSpans(empty, empty, empty, empty)
    tokens = visible[above]
    starts, ends = start[tokens], end[tokens]
    is_joined = (np.diff(above) == 1) | (starts[1:] - ends[:-1] <= merge_gap)
    if owner is not None:
        is_joined &= owner[tokens[1:]] == owner[tokens[:-1]]
    begins = np.flatnonzero(np.append(True, ~is_joined))
    lasts = np.append(begins[1:], len(tokens)) - 1
    found_end = np.maximum.reduceat(ends, begins)
    keep = found_end - starts[begins] >= min_length
    return FoundSpans(starts[begins][keep], found_end[keep], tokens[begins][keep], tokens[lasts][keep])


@options()
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

    slope: Weight = 1.0
    bias: Weight = 0.0
    token_weights: Annotated[Weights, Sizes((0, len(TOKEN_EVIDENCE) + 1))] = ()
    char_threshold: Share = 0.5
    merge_gap: Annotated[int, Range(ge=0, le=MAX_CHARACTERS)] = 0
    min_length: Annotated[int, Range(ge=1, le=MAX_CHARACTERS)] = 1
    response_weights: Annotated[Weights, Sizes((0, len(RESPONSE_EVIDENCE) + 1))] = (1.0, 0.0, 0.0, 0.0, 0.0)
    response_threshold: ResponseThreshold = 0.5
    aim: str = "none: nothing was fitted"

    def probabilities(self, answers: Answers) -> Floats:
        """Computes the calibrated P(hallucinated) of tokens."""
        if not self.token_weights:
            return sigmoid(self.slope * answers.odds + self.bias)
        return sigmoid(linear(answers.token_evidence(), self.token_weights))

    def spans(
        self,
        answers: Answers,
        probability: Floats,
        is_hallucinated: NDArray[np.bool_] | None = None,
        char_threshold: float | None = None,
    ) -> FoundSpans:
        """Finds spans of whole words above the threshold, merged and filtered; they match the labels if given.

        Args:
            probability: Calibrated probability of each token.
            is_hallucinated: The label of each response [responses]; None ignores labels.
            char_threshold: Replaces the stored threshold.
        """
        found = find_spans(
            answers.begin,
            answers.stop,
            probability,
            threshold=self.char_threshold if char_threshold is None else char_threshold,
            merge_gap=self.merge_gap,
            min_length=self.min_length,
            owner=answers.owner,
        )
        if is_hallucinated is None:
            return found
        return match_labels(found, is_hallucinated, answers.begin, answers.stop, probability, answers.owner)

    def is_hallucinated(self, scores: Floats, threshold: float | None = None) -> NDArray[np.bool_]:
        """Returns which responses are labelled hallucinated, by the stored threshold or another one."""
        return scores >= (self.response_threshold if threshold is None else threshold)

    def response_scores(self, answers: Answers, probability: Floats) -> Floats:
        """Computes P(response is hallucinated) from RESPONSE_EVIDENCE, or takes its highest token [responses]."""
        if not self.response_weights:
            return answers.worst(probability)
        return sigmoid(linear(answers.response_evidence(probability), self.response_weights))
