"""Density and coverage: how much of a response is copied, and in how long pieces (Grusky et al. 2018, section 4).

coverage = sum |f| / |R| and density = sum |f|^2 / |R|, over the fragments f that the response R shares with the
knowledge. Use them beside a faithfulness metric: a system can be faithful by copying. They are no measure of quality.
"""

from collections.abc import Sequence

import numpy as np

from faithkit.evaluation.intervals import Values
from faithkit.token_overlap import greedy_runs
from faithkit.words import words_and_marks


def extractive(responses: Sequence[str], knowledge: Sequence[str]) -> dict[str, Values]:
    """Computes `density` and `coverage` of each pair [N].

    Tokens are words in lower case and punctuation marks. An empty response has 0 of both.
    """
    words_of_responses = [words_and_marks(text) for text in responses]
    runs = [
        greedy_runs(response_words, words_and_marks(text))
        for response_words, text in zip(words_of_responses, knowledge, strict=True)
    ]
    size = np.array([max(1, len(response_words)) for response_words in words_of_responses], np.float64)
    copied = np.array([sum(lengths) for lengths in runs], np.float64)
    squared = np.array([sum(length * length for length in lengths) for lengths in runs], np.float64)
    return {"density": squared / size, "coverage": copied / size}
