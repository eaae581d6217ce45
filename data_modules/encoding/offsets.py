"""Between characters and tokens: which characters a token stands for, and which tokens a span touches.

Tokenizers disagree about what an offset covers: byte-level ones give a word its leading space or not, split an emoji
into tokens that all claim the same character, and WordPiece and Unigram drop what their normaliser removes (combining
marks, zero-width characters). Here every token gets an extent such that each visible character of the text lies in at
least one extent, and no extent begins or ends with white space: going from spans to tokens and back loses nothing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.records import Span
from faithkit.span_types import SPAN_LABELS, UNTYPED

NOTHING = -1  # the tag of a token that stands for no visible character
OUTSIDE = 0  # the tag of a token that no span touches; a span's label counts from 1, in the order of SPAN_LABELS;
# labels of a corpus's own count as UNTYPED
_NUMBERS = {label: number for number, label in enumerate(SPAN_LABELS, 1)}
Ints = NDArray[np.int64]


def visible_extents(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Where each token's characters begin and end; equal where it stands for none.

    Args:
        text: What was tokenised.
        offsets: Of its tokens, as the tokenizer gives them: in characters, beginnings in order.
    """
    if not offsets:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    size = len(text)
    table = np.asarray(offsets, np.int64)
    start, end = np.minimum(table[:, 0], size), np.minimum(table[:, 1], size)
    visible = np.fromiter((not character.isspace() for character in text), np.bool_, size)
    places = np.arange(size)
    # At each place of the text: the first visible one from here on, and the end of the last visible one before.
    following = np.append(np.minimum.accumulate(np.where(visible, places, size)[::-1])[::-1], size)
    before = np.append(0, np.maximum.accumulate(np.where(visible, places + 1, 0)))
    owns = (end > start) & (following[start] < end)
    if not owns.any():
        return start, start.copy()
    first, last = following[start], before[end]
    # What the tokenizer dropped belongs to the token before it; at the text's beginning to the first token.
    beginnings = np.unique(first[owns])
    later = np.searchsorted(beginnings, first, side="right")
    until = before[np.append(beginnings, size)[np.minimum(later, len(beginnings))]]
    last = np.maximum(last, until)
    first = np.where(first == beginnings[0], following[0], first)
    return np.where(owns, first, start), np.where(owns, last, start)


def tags_of(spans: Sequence[Span], start: NDArray[Any], end: NDArray[Any], length: int) -> NDArray[np.int8]:
    """For each token NOTHING, OUTSIDE or the number of the span that it shares a character with.

    Of several spans the one counts that covers the token's first marked character, and of several there the first.

    Args:
        length: Characters of the text.
    """
    tags = np.where(end > start, OUTSIDE, NOTHING).astype(np.int8)
    if not spans or not len(start):
        return tags
    marks = np.zeros(length + 1, np.int8)
    for span in reversed(spans):
        marks[span.start : span.end] = _NUMBERS.get(span.label, _NUMBERS[UNTYPED])
    count = np.append(0, np.cumsum(marks[:-1] > 0))
    touched = np.flatnonzero((count[end] - count[start] > 0) & (tags == OUTSIDE))
    for token in touched:
        inside = marks[start[token] : end[token]]
        tags[token] = inside[np.argmax(inside > 0)]
    return tags
