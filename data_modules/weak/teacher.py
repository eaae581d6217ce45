"""A teacher that labels pairs without human labels: classifiers on a frozen encoder, trained on about 1,000 labels.

Its probability comes from the mean log-odds of two classifiers: a logistic regression on how well the encoder's token
vectors match, and a forest on that and on the words. It generalises better than fine-tuning on the same labels, and a
cross-encoder trained on its probabilities for many pairs becomes better than both.
"""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.tokens import load_tokenizer
from data_modules.weak.features import NUM_WORD_FEATURES, text_vectors, vector_features, word_features
from faithkit.records import LABELS, Example
from faithkit.weights.load import load_model
from faithkit.weights.resolve import loading

CHUNK = 1000  # pairs whose vectors are in memory at a time
_MAX_PROBABILITY = 0.99  # of either classifier, so that neither outweighs the other

log = logging.getLogger("faithkit")


class Teacher:
    """Learns from labelled examples to estimate P(hallucinated) of unlabelled ones.

    Args:
        weights: A folder, hub name or local name of an encoder.
    """

    def __init__(self, weights: str, *, seed: int = 0):
        from sklearn.ensemble import ExtraTreesClassifier
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from transformers import AutoModel

        with loading(weights) as source:
            self.model = load_model(AutoModel, source, head_may_be_new=True).eval()
            self.tokenizer = load_tokenizer(source)
        self.linear = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
        self.forest = ExtraTreesClassifier(600, min_samples_leaf=3, random_state=seed)

    def fit(self, examples: Sequence[Example]) -> "Teacher":
        """Trains both classifiers on examples, all of them labelled."""
        labels = [LABELS.index(example.label or "") for example in examples]
        features = self._features([(e.knowledge, e.response) for e in examples])
        self.linear.fit(features[:, NUM_WORD_FEATURES:], labels)
        self.forest.fit(features, labels)
        return self

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Estimates P(hallucinated) of each (knowledge, response)."""
        features = self._features(pairs)
        linear = self.linear.predict_proba(features[:, NUM_WORD_FEATURES:])[:, 1]
        forest = self.forest.predict_proba(features)[:, 1]
        return 1 / (1 + np.exp(-(_log_odds(linear) + _log_odds(forest)) / 2))

    def _features(self, pairs: Sequence[tuple[str, str]]) -> NDArray[Any]:
        rows: list[list[float]] = []
        for begin in range(0, len(pairs), CHUNK):
            chunk = pairs[begin : begin + CHUNK]
            vectors = text_vectors(self.model, self.tokenizer, [text for pair in chunk for text in pair])
            rows += [word_features(k, r) + vector_features(vectors[k], vectors[r]) for k, r in chunk]
            log.info("teacher: %d of %d pairs measured", begin + len(chunk), len(pairs))
        return np.array(rows)


def _log_odds(probabilities: NDArray[Any]) -> NDArray[np.float64]:
    clipped = np.clip(probabilities, 1 - _MAX_PROBABILITY, _MAX_PROBABILITY)
    return np.log(clipped) - np.log1p(-clipped)
