"""Widens tokens to the words that they stand in, so that no span begins or ends within one."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
# Thai, Lao, Burmese, Khmer, kana, Han: written without spaces, so what stands together there is no word.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
JOINERS = "\u200c\u200d"  # within words of Persian and of Indian scripts


def widen_to_words(start: Ints, end: Ints, owner: Ints, texts: Sequence[str]) -> tuple[Ints, Ints]:
    """Moves each token's begin and end out to the borders of the words that it touches [tokens each].

    A word is a run of letters, digits and marks, with an apostrophe within ("don't") and a number as one ("1,250.5").

    Args:
        start: First character of each token, in its text; equal to `end` where it stands for none: it stays so.
        end: Behind its last character.
        owner: Which text each token belongs to, ascending.
    """
    wide_start, wide_end = start.copy(), end.copy()
    bounds = np.searchsorted(owner, np.arange(len(texts) + 1))
    for text, first, last in zip(texts, bounds[:-1], bounds[1:], strict=True):
        words = np.array([match.span() for match in _word().finditer(text)], np.int64).reshape(-1, 2)
        own = np.arange(first, last)[end[first:last] > start[first:last]]
        if not len(words) or not len(own):
            continue
        begins, ends = words.T
        reached = np.minimum(np.searchsorted(ends, start[own], "right"), len(words) - 1)  # the first that ends behind
        inside = (begins[reached] < start[own]) & (start[own] < ends[reached])
        wide_start[own[inside]] = begins[reached[inside]]
        begun = np.maximum(np.searchsorted(begins, end[own], "left") - 1, 0)  # the last that begins before
        inside = (begins[begun] < end[own]) & (end[own] < ends[begun])
        wide_end[own[inside]] = ends[begun[inside]]
    return wide_start, wide_end


@cache
def _word() -> re.Pattern[str]:
    marks = "".join(c for c in map(chr, range(0x300, 0x10000)) if unicodedata.category(c) in ("Mn", "Mc"))
    letters = f"(?:(?![{UNSPACED}])[\\w{marks}{JOINERS}])+"
    return re.compile(rf"\d+(?:[.,]\d+)+(?!\w)|{letters}(?:['’]{letters})*")
