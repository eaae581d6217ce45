"""ROUGE-1, 2 and L: n-grams and the longest common subsequence shared with the gold response (Lin 2004, sections 2, 3).

F = 2 * shared / (tokens of the response + tokens of the gold response), without stemming. Use it to compare with
published systems; it rewards the gold wording, and a hallucination of two words costs no more than a synonym.

Values equal the package rouge-score's (a test compares them); this file's counting takes a twentieth of its time.
"""

from collections.abc import Sequence

import numpy as np

from faithkit.metrics.responses.ngrams import shared_grams
from faithkit.statistics.intervals import Values
from faithkit.token_overlap import lcs_length
from faithkit.words import ascii_words


def rouge(responses: Sequence[str], references: Sequence[str]) -> dict[str, Values]:
    """Computes the F-measures `rouge_1`, `rouge_2` and `rouge_l` of each pair [N]; 0 where a text has no token."""
    response_words = [ascii_words(text) for text in responses]
    gold_words = [ascii_words(text) for text in references]
    one, two = shared_grams(response_words, gold_words, 2)
    common = np.array([lcs_length(a, b) for a, b in zip(response_words, gold_words, strict=True)], np.float64)
    both = one.first + one.second
    longest = np.divide(2 * common, both, out=np.zeros_like(both), where=common > 0)
    return {"rouge_1": one.f1, "rouge_2": two.f1, "rouge_l": longest}
