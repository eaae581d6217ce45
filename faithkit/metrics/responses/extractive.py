"""Density and coverage: how much of a response is copied, and in how long pieces (Grusky et al. 2018, section 4).

coverage = sum |f| / |R| and density = sum |f|^2 / |R|, over the fragments f that the response R shares with the
knowledge. Use them beside a faithfulness metric: a system can be faithful by copying. They are no measure of quality.
"""

from collections.abc import Sequence

import numpy as np

from faithkit.statistics.intervals import Values
from faithkit.token_overlap import greedy_runs
from faithkit.words import words_and_marks


def extractive(responses: Sequence[str], knowledge: Sequence[str]) -> dict[str, Values]:
    """Computes `density` and `coverage` of each pair [N].

    Tokens are words in lower case and punctuation marks. An empty response has 0 of both.
    """
    pairs = [
        copied(words_and_marks(response), words_and_marks(text))
        for response, text in zip(responses, knowledge, strict=True)
    ]
    coverage, density = np.array(pairs, np.float64).reshape(-1, 2).T
    return {"density": density, "coverage": coverage}


def copied(response: Sequence[str], knowledge: Sequence[str]) -> tuple[float, float]:
    """Computes coverage and density of the tokens of a response."""
    runs, size = greedy_runs(response, knowledge), max(1, len(response))
    return sum(runs) / size, sum(length * length for length in runs) / size
