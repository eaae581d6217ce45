"""Converts the logits of response tokens to labels, scores and spans."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic.requests import Request
from critic.tagger.calibration_features import response_evidence, words_of, worst_tokens
from critic.tagger.span_calibration import SpanCalibration
from critic.tagger.tagger_requests import Tagged, TaggedSpan
from critic.tagger.windows import exact_log_odds
from faithkit.records import FAITHFUL, HALLUCINATED, UNTYPED


def mark_responses(
    requests: Sequence[Request],
    columns: Mapping[str, Any],
    logits: NDArray[np.float32],
    calibration: SpanCalibration,
    labels: Mapping[int, str],
    threshold: float | None,
    span_threshold: float | None = None,
) -> list[Tagged]:
    """Computes label, score and spans of each response; spans match the label, unless they have a separate threshold.

    Args:
        columns: Columns of `SpanEncoder` for the requests.
        logits: Logits of all response tokens, concatenated [tokens, classes].
        labels: Names of the classes; 0 is outside.
        threshold: Probability from which a response is labelled hallucinated; None takes the stored threshold.
        span_threshold: Probability from which characters are marked, regardless of the label; None takes the stored
            threshold, with no span in a faithful response and at least one in a hallucinated response.
    """
    # Calibrated probability of each token [tokens].
    odds = exact_log_odds(logits)
    owner = np.repeat(np.arange(len(requests)), columns["start"].lengths)
    starts, ends = (columns[side].values.astype(np.int64) for side in ("start", "end"))
    words = words_of(starts, ends, owner, requests)
    probability = calibration.probabilities(odds, words)

    # Score and label of each response [responses].
    size = ends - starts  # characters of each token [tokens]
    evidence = response_evidence(odds, probability, size, owner, words, len(requests))
    scores = calibration.response_scores(evidence, worst_tokens(probability, size, owner, len(requests)))
    is_hallucinated = calibration.is_hallucinated(scores, threshold)

    # Spans of each response.
    labels_to_match = is_hallucinated if span_threshold is None else None
    found = calibration.spans(words, probability, owner, labels_to_match, span_threshold)
    spans: list[list[TaggedSpan]] = [[] for _ in requests]
    for begin, stop, first, last in zip(found.start, found.end, found.first, found.last, strict=True):
        tokens = slice(first, last + 1)
        response = int(owner[first])
        spans[response].append(
            TaggedSpan(
                start=int(begin),
                end=int(stop),
                text=requests[response].response[begin:stop],
                label=most_probable_type(logits[tokens], labels),
                score=float(np.average(probability[tokens], weights=size[tokens])),
            )
        )

    return [
        Tagged(label=HALLUCINATED if hallucinated else FAITHFUL, score=float(score), spans=of_response)
        for score, hallucinated, of_response in zip(scores, is_hallucinated, spans, strict=True)
    ]


def most_probable_type(logits: NDArray[np.float32], labels: Mapping[int, str]) -> str:
    """Returns the type with the highest probability, summed over a span's tokens.

    Args:
        logits: [tokens, classes].
        labels: Names of the classes; 0 is outside. A head with two classes has no types.
    """
    if logits.shape[1] == 2:
        return UNTYPED
    probabilities = np.exp(logits - logits.max(1, keepdims=True))
    probabilities /= probabilities.sum(1, keepdims=True)
    return str(labels[1 + int(probabilities[:, 1:].sum(0).argmax())])
