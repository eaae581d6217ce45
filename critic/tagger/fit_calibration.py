"""Fits a tagger's calibration on validation in four steps.

1. P(token is hallucinated): a logistic regression of gold tags on token features (`fit_tokens`).
2. P(response is hallucinated): a logistic regression of gold labels on response features (`fit_line`).
3. The threshold on it, chosen for `threshold_aim` (`faithkit.calibration.choose_threshold`).
4. Spans of the responses that are labelled hallucinated: the threshold, merge gap and minimum length with the best
   character F1 (`fit_spans`).

For domains other than validation's, steps 2 and 3 are left out, because the effect of length and the base rate differ
between domains. A response then has the probability of its most probable token, and the threshold of the spans.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic.logistic import fit_line, sigmoid
from critic.tagger.span_calibration import Answers, SpanCalibration
from data_modules.encoding.tokens import tags_of
from faithkit.calibration import calibration_error, choose_threshold
from faithkit.records import HALLUCINATED, Example

MERGE_GAPS = (0, 4, 12, 30)
MIN_LENGTHS = (1, 4, 10, 20)
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def fit_calibration(
    answers: Answers, examples: Sequence[Example], aim: str, *, use_evidence: bool = True, by_tokens: bool = False
) -> tuple[SpanCalibration, dict[str, Any]]:
    """Fits the four steps on annotated validation answers, each on the results of the previous one; returns a report.

    Args:
        use_evidence: Calibrates tokens by all features of `critic.tagger.span_calibration`, not only log-odds.
        by_tokens: Labels responses by their tokens, without steps 2 and 3; `aim` is not used then.
        aim: Metric that the response threshold maximises: f1, macro_f1 or precision>=p.
    """
    wrong = wrong_tokens(answers, examples)  # [tokens]
    gold = np.array([example.label == HALLUCINATED for example in examples], np.int8)  # [responses]
    visible = answers.characters > 0
    slope, bias, note = fit_line(answers.odds[visible, None], wrong[visible])
    calibration = SpanCalibration(slope=slope[0], bias=bias)
    if use_evidence and not note:
        weights, bias, note = fit_line(answers.token_evidence()[visible], wrong[visible])
        calibration = replace(calibration, token_weights=() if note else (*weights, bias))
    probability = calibration.probabilities(answers)  # [tokens]
    notes = [note]
    if by_tokens:
        calibration, char_f1 = fit_spans(replace(calibration, response_weights=()), answers, probability, examples)
        aim = "char_f1: the label of a response follows from its tokens"
        calibration = replace(calibration, response_threshold=calibration.char_threshold, aim=aim)
        scores = answers.worst(probability)  # [responses]
        predicted = calibration.is_hallucinated(scores)
        response_f1 = float(2 * (predicted & (gold > 0)).sum() / max(1, predicted.sum() + gold.sum()))
    else:
        weights, bias, note = fit_line(answers.response_evidence(probability), gold)
        calibration = replace(calibration, response_weights=(*weights, bias), aim=aim)
        scores = calibration.response_scores(answers, probability)  # [responses]
        threshold = choose_threshold(scores, gold, aim)
        calibration, response_f1 = replace(calibration, response_threshold=threshold.value), threshold.f1
        calibration, char_f1 = fit_spans(
            calibration, answers, probability, examples, calibration.is_hallucinated(scores)
        )
        notes += [note, threshold.note]
    report = {
        "num_responses": len(examples),
        "num_tokens": int(visible.sum()),
        "token_ece_before": calibration_error(sigmoid(answers.odds[visible]), wrong[visible]),
        "token_ece_after": calibration_error(probability[visible], wrong[visible]),
        "response_ece": calibration_error(scores, gold),
        "char_f1": char_f1,
        "response_f1": response_f1,
        "notes": [text for text in notes if text],
    }
    return calibration, report


def wrong_tokens(answers: Answers, examples: Sequence[Example]) -> NDArray[np.int8]:
    """Computes gold tags: 1 if a gold span overlaps the token [tokens]."""
    bounds = np.searchsorted(answers.owner, np.arange(len(examples) + 1))
    rows = [
        tags_of(example.spans or (), answers.start[first:last], answers.end[first:last], len(example.response)) > 0
        for example, first, last in zip(examples, bounds[:-1], bounds[1:], strict=True)
    ]
    return np.concatenate(rows).astype(np.int8)


def fit_spans(
    calibration: SpanCalibration,
    answers: Answers,
    probability: Floats,
    examples: Sequence[Example],
    is_hallucinated: NDArray[np.bool_] | None = None,
) -> tuple[SpanCalibration, float]:
    """Chooses threshold, merge gap and minimum length by grid search for the best character F1; returns that F1.

    Ties are resolved by the smallest gap, then the smallest length, then the lowest threshold.

    Args:
        is_hallucinated: The label of each response, which spans must match; None allows spans in all responses.
    """
    begins = np.append(0, np.cumsum([len(example.response) for example in examples]))  # of each answer, concatenated
    marked = np.zeros(int(begins[-1]), np.int64)
    for first, example in zip(begins[:-1], examples, strict=True):
        for span in example.spans or ():
            marked[first + span.start : first + span.end] = 1
    before = np.append(0, np.cumsum(marked))  # annotated characters before each position
    if not before[-1]:
        return calibration, 0.0
    thresholds = np.unique(np.quantile(probability[answers.characters > 0], np.linspace(0.3, 1.0, 40)))
    best, best_f1 = calibration, -1.0
    for merge_gap, min_length, threshold in product(MERGE_GAPS, MIN_LENGTHS, thresholds):
        tried = replace(calibration, char_threshold=float(threshold), merge_gap=merge_gap, min_length=min_length)
        found = tried.spans(answers, probability, is_hallucinated)
        begin = begins[answers.owner[found.first]]  # of the answer of each span
        correct = int((before[begin + found.end] - before[begin + found.start]).sum())
        f1 = 2 * correct / (int(before[-1]) + int((found.end - found.start).sum()))
        if f1 > best_f1:
            best, best_f1 = tried, f1
    return best, best_f1


def best_f1(odds: Floats, true_positives: Ints, positives: Ints, total: int) -> float:
    """Computes the best F1 over all thresholds on the log-odds.

    Args:
        odds: Log-odds of each row; rows with at least the threshold are predicted hallucinated [rows].
        true_positives: True positives that a predicted row adds [rows].
        positives: Predicted positives that it adds [rows].
        total: Gold positives of all rows.
    """
    order = np.argsort(-odds, kind="stable")
    ends = np.flatnonzero(np.diff(odds[order], append=-np.inf))  # the last of equal odds, which share a threshold
    hits, size = np.cumsum(true_positives[order])[ends], np.cumsum(positives[order])[ends]
    return float((2 * hits / np.maximum(size + total, 1)).max(initial=0.0))
