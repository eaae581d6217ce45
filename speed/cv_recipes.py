"""Readings of the same five taggers, and the choice among them inside: each fold by what is best on the other four.

A reading turns a tagger's log-odds into marks. They were ranked on the folds that they are reported on, which favours
the best; chosen inside, no fold's marks depend on its own labels. The models are not trained anew inside, so of two
folds each model has read the other's labels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from critic.tagger.answers import Answers
from critic.tagger.fit_calibration import fit_calibration
from critic.tagger.span_calibration import SpanCalibration
from faithkit.metrics.span_metrics import span_metrics
from faithkit.records import LABELS, Example, Prediction, Span
from faithkit.span_types import UNTYPED
from speed.cv_folds import Predictions


@dataclass(frozen=True, eq=False)
class Part:
    """The test part of a fold, as its tagger reads it: the log-odds, and the marks by its own validation part."""

    examples: list[Example]
    answers: Answers
    own: Predictions


# Which marks a part gets, with a calibration that may be fitted on the others.
Reading = Callable[[Part, Sequence[Part]], Predictions]


def own_thresholds(part: Part, others: Sequence[Part]) -> Predictions:
    """Reads by the calibration of the fold's own validation part."""
    return part.own


def across_folds(*, sentence: bool, words: bool) -> Reading:
    """Reads by a calibration that is fitted on the other folds' test parts: answers enough to choose thresholds by.

    Args:
        sentence: A token is read with the mean of its sentence.
        words: A token is read with the words that the context lacks, and so is its response.
    """

    def shown(answers: Answers) -> Answers:
        nothing = np.zeros(len(answers.odds))
        kept = answers.words
        kept = kept if words else replace(kept, missing=nothing, share=nothing)
        return replace(answers, words=kept if sentence else replace(kept, sentence=nothing.astype(np.int64)))

    @cache  # inside, two parts that are left out together are met twice
    def fitted(others: tuple[Part, ...]) -> SpanCalibration:
        joined = Answers.join([shown(other.answers) for other in others], [len(other.examples) for other in others])
        return fit_calibration(joined, [example for other in others for example in other.examples], "f1")[0]

    def read(part: Part, others: Sequence[Part]) -> Predictions:
        return mark(shown(part.answers), part.examples, fitted(tuple(others)))

    return read


OWN_PART = "own validation part"
READINGS: Mapping[str, Reading] = {
    OWN_PART: own_thresholds,
    "across folds, tokens alone": across_folds(sentence=False, words=False),
    "across folds, with sentences": across_folds(sentence=True, words=False),
    "across folds, with words": across_folds(sentence=False, words=True),
    "across folds, with both": across_folds(sentence=True, words=True),
}


def mark(answers: Answers, examples: Sequence[Example], calibration: SpanCalibration) -> Predictions:
    """Marks the responses by a calibration: spans of no type, scores and labels."""
    probability = calibration.probabilities(answers.odds, answers.words)  # [tokens]
    evidence, worst = answers.responses(probability, len(examples)), answers.worst(probability, len(examples))
    scores = calibration.response_scores(evidence, worst)
    called = calibration.called(scores)
    found = calibration.spans(answers.words, probability, answers.owner, called)
    spans: list[list[Span]] = [[] for _ in examples]
    for start, end, first in zip(found.start, found.end, found.first, strict=True):
        spans[int(answers.owner[first])].append(Span(start=int(start), end=int(end), label=UNTYPED))
    return {
        example.id: Prediction(id=example.id, label=LABELS[int(is_called)], score=float(score), spans=tuple(marked))
        for example, score, is_called, marked in zip(examples, scores, called, spans, strict=True)
    }


def read_all(parts: Sequence[Part], reading: Reading) -> Predictions:
    """Reads every part, with all others to fit on."""
    found: Predictions = {}
    for held_out, part in enumerate(parts):
        found |= reading(part, [other for place, other in enumerate(parts) if place != held_out])
    return found


def choose_inside(parts: Sequence[Part], readings: Mapping[str, Reading] = READINGS) -> tuple[Predictions, list[str]]:
    """Reads each part by the reading whose F1 of responses and characters add up to most on the other parts.

    Returns:
        The predictions of all parts, and the reading that each got.
    """
    found: Predictions = {}
    chosen: list[str] = []
    for held_out, part in enumerate(parts):
        others = [other for place, other in enumerate(parts) if place != held_out]
        inside = [example for other in others for example in other.examples]

        def quality(name: str, others: Sequence[Part] = others, inside: Sequence[Example] = inside) -> float:
            metrics = span_metrics(inside, read_all(others, readings[name]), num_resamples=2).metrics
            return metrics["response_f1"].value + metrics["char_f1"].value

        chosen.append(max(readings, key=quality))
        found |= readings[chosen[-1]](part, others)
    return found, chosen
