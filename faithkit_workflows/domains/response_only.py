"""Measures how well labels can be predicted without the knowledge: classifiers of the response, by folds of groups.

If the response alone (its length, punctuation, words or author) predicts the labels, the test set does not show whether
a detector compares it with the knowledge. Each figure is the AUROC of a logistic regression on one kind of features,
scored on groups that it was not trained on. `knowledge length` uses the knowledge's length and no response.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.baselines.counted_features import FIRST_PERSON, MARKS, NEGATIONS
from faithkit.baselines.simple_detectors import folds_by_group
from faithkit.calibration.thresholds import apply_temperature, predict_by_threshold
from faithkit.metrics.classification import classification_metrics
from faithkit.metrics.outcomes import join_outcomes
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit.statistics.metric import Metric
from faithkit.words import unicode_words

LENGTH, PUNCTUATION, WORDS, AUTHOR, KNOWLEDGE, ALL = KINDS = (
    "length",
    "marks",
    "words",
    "author",
    "knowledge length",
    "response, all",
)
AUTHOR_FIELDS = ("model", "model_name")  # of `meta`
MIN_ROWS = 3  # rarer words are ignored
Counts = dict[str, float]


def measure_response_only(examples: Sequence[Example], *, num_resamples: int = 1000) -> dict[str, Metric]:
    """Computes the AUROC of each kind of features, with its interval; kinds that the set does not have are left out."""
    kinds: dict[str, Callable[[Example], Counts]] = {
        LENGTH: _count_length,
        PUNCTUATION: _count_marks,
        WORDS: _count_words,
        KNOWLEDGE: lambda example: {"knowledge": len(unicode_words(example.knowledge))},
        ALL: lambda example: _count_length(example) | _count_marks(example) | _count_words(example),
    }
    if len({_author(example) for example in examples}) > 1:
        kinds[AUTHOR] = lambda example: {f"by {_author(example)}": 1.0}
    found = {}
    for kind in KINDS:
        if kind in kinds and (metric := _measure(examples, [kinds[kind](one) for one in examples], num_resamples)):
            found[kind] = metric
    return found


def _count_length(example: Example) -> Counts:
    words = unicode_words(example.response)
    characters = len(example.response)
    return {"#words": len(words), "#log words": np.log1p(len(words)), "#per word": characters / max(1, len(words))}


def _count_marks(example: Example) -> Counts:
    text, words = example.response, unicode_words(example.response)
    counts = {f"#{mark}": float(text.count(mark)) for mark in MARKS}
    return counts | {
        "#capitals": sum(character.isupper() for character in text) / max(1, len(text)),
        "#digits": sum(character.isdigit() for character in text) / max(1, len(text)),
        "#starts lower": float(text[:1].islower()),
        "#ends with a mark": float(text.rstrip()[-1:] in MARKS and bool(text.strip())),
        "#negations": sum(word in NEGATIONS for word in words),
        "#first person": sum(word in FIRST_PERSON for word in words),
    }


def _count_words(example: Example) -> Counts:
    words = unicode_words(example.response)
    return dict.fromkeys([*words, *(" ".join(pair) for pair in pairwise(words))], 1.0)


def _author(example: Example) -> str:
    return next((str(example.meta[name]) for name in AUTHOR_FIELDS if example.meta.get(name) is not None), "")


def _measure(examples: Sequence[Example], counts: Sequence[Counts], num_resamples: int) -> Metric | None:
    by_id = {example.id: of_row for example, of_row in zip(examples, counts, strict=True)}
    predictions: dict[str, Prediction] = {}
    for others, held_out in folds_by_group(examples):
        gold = np.array([example.label == HALLUCINATED for example in others])
        if not 0 < gold.sum() < len(gold):
            return None
        model = _fit([by_id[example.id] for example in others], gold)
        # The training rows' mean is subtracted: a fold with more rows of a class leaves fewer of it for training, so
        # raw log-odds would order the folds the wrong way round.
        mean = model.decision_function([by_id[example.id] for example in others]).mean()
        scores = apply_temperature(model.decision_function([by_id[example.id] for example in held_out]) - mean, 1.0)
        predictions |= predict_by_threshold((example.id for example in held_out), scores, 0.5)
    if len(predictions) < len(examples):
        return None
    outcomes = join_outcomes(examples, predictions)
    return classification_metrics(outcomes, num_resamples=num_resamples).metrics.get("auroc")


def _fit(counts: Sequence[Counts], gold: NDArray[np.bool_]) -> Any:
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler

    num_rows = Counter(name for of_row in counts for name in of_row)
    # "#" is a constant feature, because there may be no other.
    kept = [{"#": 1.0} | {name: n for name, n in of_row.items() if num_rows[name] >= MIN_ROWS} for of_row in counts]
    model = make_pipeline(DictVectorizer(), MaxAbsScaler(), LogisticRegression(C=1.0, max_iter=500))
    return model.fit(kept, gold)
