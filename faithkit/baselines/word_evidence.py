"""Evidence that needs no model: what the words of a response have and lack of its knowledge, in eight numbers.

A logistic regression on them is the plainest baseline over domains (`faithkit_workflows.domains`), and a critic with
`model.evidence=true` reads them beside its own log-odds (`critic.sequence.evidence`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from faithkit.baselines.counted_features import FEATURES, count_features

WORD_EVIDENCE = (
    "unknown share",
    "unknown content share",
    "unknown pairs, share",
    "unknown numbers",
    "unknown names",
    "response words",
    "knowledge words",
    "negations, response - knowledge",
)
Values = NDArray[np.float64]
_PLACES = [FEATURES.index(name) for name in WORD_EVIDENCE]


def word_evidence(knowledge: Sequence[str], response: Sequence[str]) -> Values:
    """Computes `WORD_EVIDENCE` of each pair, compressed [pairs, 8]."""
    if not len(response):
        return np.zeros((0, len(WORD_EVIDENCE)))
    return compress(count_features(knowledge, response)[:, _PLACES])


def compress(features: Values) -> Values:
    """Takes logarithms, sign kept: an answer ten times as long as any seen would else outweigh all other features."""
    return np.sign(features) * np.log1p(np.abs(features))
