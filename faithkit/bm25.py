"""BM25: finds the passages that share the rare words of a query (Robertson & Zaragoza 2009, Okapi weights).

    score(q, p) = sum over the distinct words w of q of idf(w) * f (k1 + 1) / (f + k1 (1 - b + b |p| / mean |p|))
    idf(w) = ln(1 + (N - n + 1/2) / (n + 1/2))

f: how often w stands in p; |p|: words of p; N: passages; n: passages with w. The 1 within idf keeps it above 0.
Words are `faithkit.words.unicode_words`.

>>> from faithkit.bm25 import Bm25
>>> Bm25(["The Danube is long.", "A cat sleeps.", "The cat is old."]).best("How long is the Danube?", 2)
['The Danube is long.', 'The cat is old.']
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from faithkit.words import unicode_words

K1, B = 1.5, 0.75


class Bm25:
    """An index of passages in memory.

    Args:
        k1: How much a second occurrence of a word adds.
        b: How much long passages are held back, 0 to 1.
    """

    def __init__(self, passages: Sequence[str], *, k1: float = K1, b: float = B):
        self.passages = list(passages)
        counts = [Counter(unicode_words(passage)) for passage in self.passages]
        lengths = np.array([own.total() for own in counts], np.float64)
        mean = lengths.mean() if lengths.any() else 1.0
        where: defaultdict[str, list[int]] = defaultdict(list)
        for place, own in enumerate(counts):
            for word in own:
                where[word].append(place)
        self._weights: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        for word, places in where.items():
            rows = np.array(places, np.int64)
            often = np.array([counts[place][word] for place in places], np.float64)
            rarity = log(1 + (len(counts) - len(places) + 0.5) / (len(places) + 0.5))
            slowed = often + k1 * (1 - b + b * lengths[rows] / mean)
            self._weights[word] = (rows, rarity * often * (k1 + 1) / slowed)

    def scores(self, query: str) -> NDArray[np.float64]:
        """Scores each passage."""
        found = np.zeros(len(self.passages))
        for word in dict.fromkeys(unicode_words(query)):
            if word in self._weights:
                rows, weights = self._weights[word]
                found[rows] += weights
        return found

    def best(self, query: str, count: int) -> list[str]:
        """Finds the passages with the highest scores, best first, of equals the first; never without a shared word."""
        scores = self.scores(query)
        order = np.argsort(-scores, kind="stable")[:count]
        return [self.passages[place] for place in order if scores[place] > 0]
