"""ROUGE-1, 2 and L of responses with the gold response (Lin 2004), values equal to the package rouge-score's."""

import re
from collections.abc import Sequence

import numpy as np

from faithkit.evaluation.intervals import Values
from faithkit.evaluation.responses.ngrams import shared_grams
from faithkit.token_overlap import lcs_length

_TOKEN = re.compile(r"[a-z0-9]+")


def rouge(responses: Sequence[str], references: Sequence[str]) -> dict[str, Values]:
    """F-measures `rouge_1`, `rouge_2` and `rouge_l` of each pair [N], without stemming; 0 where a text has no token."""
    said = [_TOKEN.findall(text.lower()) for text in responses]
    gold = [_TOKEN.findall(text.lower()) for text in references]
    one, two = shared_grams(said, gold, 2)
    common = np.array([lcs_length(a, b) for a, b in zip(said, gold, strict=True)], np.float64)
    both = one.first + one.second
    longest = np.divide(2 * common, both, out=np.zeros_like(both), where=common > 0)
    return {"rouge_1": one.f1, "rouge_2": two.f1, "rouge_l": longest}
