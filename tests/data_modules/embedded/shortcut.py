"""Attacks on the corpus: classifiers that count and cannot read. Theirs is the score that a critic has to beat."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.sparse import hstack
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from faithkit.baselines.counted_features import count_features, fit_counted_features
from faithkit.records import HALLUCINATED, Example
from faithkit.words import unicode_words


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


def counted_words_baseline(train: Sequence[Example], test: Sequence[Example], num_words: int = 400) -> float:
    """Computes the macro-F1 of boosted trees that also see common words, and which of them the knowledge lacks.

    Twenty times slower than `counted_baseline`: an attack, not a baseline to print.
    """
    common = Counter(word for e in train for word in set(unicode_words(e.response))).most_common(num_words)
    words = [word for word, _ in common]
    parts = [np.hstack([_counted(some), _common_words(some, words)]) for some in (train, test)]
    trees = HistGradientBoostingClassifier(
        learning_rate=0.06, max_iter=200, max_leaf_nodes=12, l2_regularization=1.0, random_state=0
    )
    return float(f1_score(_gold(test), trees.fit(parts[0], _gold(train)).predict(parts[1]), average="macro"))


def _counted(examples: Sequence[Example]) -> np.ndarray:
    return count_features([e.knowledge for e in examples], [e.response for e in examples])


def _common_words(examples: Sequence[Example], words: Sequence[str]) -> np.ndarray:
    """Says for each word whether the reply has it, and whether the knowledge lacks it [examples, 2 x words]."""
    rows = []
    for e in examples:
        used, known = set(unicode_words(e.response)), set(unicode_words(e.knowledge))
        rows.append([w in used for w in words] + [w in used and w not in known for w in words])
    return np.array(rows, np.float64)


def _gold(examples: Sequence[Example]) -> np.ndarray:
    return np.array([e.label == HALLUCINATED for e in examples])
