"""Attacks on the corpus: classifiers that count and cannot read. Theirs is the score that a critic has to beat."""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from faithkit.baselines.word_features import fit_counted_features
from faithkit.records import HALLUCINATED, Example


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
