"""Turns the logits of response tokens into labels, scores and spans."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic.requests import Request
from critic.tagger.evidence import response_evidence, words_of, worst_tokens
from critic.tagger.forward import exact_log_odds
from critic.tagger.requests import Tagged, TaggedSpan
from critic.tagger.span_calibration import SpanCalibration
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit.span_types import UNTYPED


def mark_responses(
    requests: Sequence[Request],
    columns: Mapping[str, Any],
    logits: NDArray[np.float32],
    calibration: SpanCalibration,
    labels: Mapping[int, str],
    threshold: float | None,
    span_threshold: float | None = None,
) -> list[Tagged]:
    """Label, score and spans of each response; label and spans agree, unless spans have a threshold of their own.

    Args:
        columns: Columns of `SpanEncoder` of the requests.
        logits: Of each response token, one response behind the other [tokens, classes].
        labels: Names of the classes; 0 is outside.
        threshold: A response is called hallucinated from this probability on; None takes the stored one.
        span_threshold: Characters are marked from this probability on, whatever the label; None takes the stored one,
            and leaves no mark in a faithful response and one at least in a hallucinated one.
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
    called = calibration.called(scores, threshold)

    # Spans of each response.
    agree = called if span_threshold is None else None
    found = calibration.spans(words, probability, owner, agree, span_threshold)
    spans: list[list[TaggedSpan]] = [[] for _ in requests]
    for begin, stop, first, last in zip(found.start, found.end, found.first, found.last, strict=True):
        own = slice(first, last + 1)
        response = int(owner[first])
        spans[response].append(
            TaggedSpan(
                start=int(begin),
                end=int(stop),
                text=requests[response].response[begin:stop],
                label=likeliest_type(logits[own], labels),
                score=float(np.average(probability[own], weights=size[own])),
            )
        )

    return [
        Tagged(label=HALLUCINATED if is_called else FAITHFUL, score=float(score), spans=own)
        for score, is_called, own in zip(scores, called, spans, strict=True)
    ]


def likeliest_type(logits: NDArray[np.float32], labels: Mapping[int, str]) -> str:
    """The type with the highest probability, summed over a span's tokens.

    Args:
        logits: [tokens, classes].
        labels: Names of the classes; 0 is outside, and a single one behind it tells no types.
    """
    if logits.shape[1] == 2:
        return UNTYPED
    probabilities = np.exp(logits - logits.max(1, keepdims=True))
    probabilities /= probabilities.sum(1, keepdims=True)
    return str(labels[1 + int(probabilities[:, 1:].sum(0).argmax())])
