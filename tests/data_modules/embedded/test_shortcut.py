"""No shortcut through words: what a classifier without comparison reaches, and what the classes share."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.sparse import hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from data_modules.embedded.corpus import generate
from data_modules.embedded.phrasing import LEADS, OPENERS
from faithkit.baselines.word_features import fit_counted_features
from faithkit.records import FAITHFUL, HALLUCINATED, Example


def shortcut_baseline(train: Sequence[Example], test: Sequence[Example]) -> float:
    """Computes the macro-F1 of a logistic regression on TF-IDF of 1- and 2-grams, of knowledge and response apart."""
    texts = [(e.knowledge, e.response) for e in (*train, *test)]
    blocks = []
    for side in (0, 1):
        vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
        vectorizer.fit([pair[side] for pair in texts[: len(train)]])
        blocks.append(vectorizer.transform([pair[side] for pair in texts]))
    features = hstack(blocks).tocsr()
    model = LogisticRegression(max_iter=1000).fit(features[: len(train)], _gold(train))
    return float(f1_score(_gold(test), model.predict(features[len(train) :]), average="macro"))


def counted_baseline(train: Sequence[Example], test: Sequence[Example]) -> float:
    """Computes the macro-F1 of the baseline that every critic's test shows, at threshold 0.5."""
    model = fit_counted_features(train)
    assert model is not None
    found = model.predictions(test)
    return float(f1_score(_gold(test), [found[e.id].label == HALLUCINATED for e in test], average="macro"))


def _gold(examples: Sequence[Example]) -> np.ndarray:
    return np.array([e.label == HALLUCINATED for e in examples])


@pytest.fixture(scope="module")
def train() -> list[Example]:
    return list(generate("train", 4000))


@pytest.mark.parametrize(("attack", "limit"), [(shortcut_baseline, 0.60), (counted_baseline, 0.64)])
def test_what_can_be_counted_does_not_solve_it(attack: Any, limit: float, train: list[Example]) -> None:
    assert attack(train, list(generate("test", 2000))) < limit


def test_classes_are_alike_in_length_and_words(train: list[Example]) -> None:
    by_label = {label: [e for e in train if e.label == label] for label in (FAITHFUL, HALLUCINATED)}
    assert abs(len(by_label[FAITHFUL]) - len(by_label[HALLUCINATED])) <= 1
    lengths = {label: statistics.mean(len(e.response.split()) for e in some) for label, some in by_label.items()}
    assert abs(lengths[FAITHFUL] - lengths[HALLUCINATED]) < 0.6
    for phrase in (*OPENERS, *LEADS, " not ", " no ", " never ", "I ", "my ", "you", "?", " loved "):
        counts = [sum(phrase in e.response for e in some) for some in by_label.values()]
        if sum(counts) >= 60:
            assert 0.55 < counts[0] / counts[1] < 1.8, (phrase, counts)
    assert by_label[FAITHFUL][0].knowledge == by_label[HALLUCINATED][0].knowledge


def test_an_addition_is_true_elsewhere(train: list[Example]) -> None:
    """The unsupported clause is one that faithful replies of other turns say too."""
    faithful = " ".join(e.response for e in train if e.label == FAITHFUL)
    clauses = Counter(
        e.response[s.start : s.end] in faithful
        for e in train
        for s in e.spans or ()
        if s.label == "addition" and not any(c.isdigit() or c.isupper() for c in e.response[s.start : s.end])
    )
    assert clauses[True] > 0.5 * clauses.total()
