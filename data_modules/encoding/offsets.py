"""Maps tokens to the characters that they cover, and spans to the tokens that they touch.

Tokenizers disagree about what an offset covers: byte-level ones give a word its leading space or not, split an emoji
into tokens that all claim the same character, and WordPiece and Unigram drop what their normaliser removes (combining
marks, zero-width characters). Here every token gets an extent such that each visible character of the text lies in at
least one extent, and no extent begins or ends with white space: going from spans to tokens and back loses nothing.

Shapes below: T tokens, C characters.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.records import SPAN_LABELS, UNTYPED, Span

NOTHING = -1  # the tag of a token that covers no visible character
OUTSIDE = 0  # the tag of a token that no span touches; labels are numbered from 1, in the order of SPAN_LABELS
_NUMBERS = {label: number for number, label in enumerate(SPAN_LABELS, 1)}  # other labels count as UNTYPED
UNTYPED_TAG = _NUMBERS[UNTYPED]
Ints = NDArray[np.int64]


def visible_extents(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Finds the beginning and the end of each token's characters; they are equal if it covers none.

    Args:
        text: The text that was tokenised.
        offsets: The tokens' offsets as the tokenizer gives them: in characters, beginnings in order.

    Returns:
        Beginnings and ends, each of shape (T,).
    """
    if not offsets:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    table = np.minimum(np.asarray(offsets, np.int64), len(text))  # (T, 2)
    start, end = table[:, 0], table[:, 1]
    # For each place of the text, (C + 1,): the first visible character at or after it (C where there is none), and the
    # end of the last visible one before it (0 where there is none).
    size = len(text)
    visible = np.fromiter((not character.isspace() for character in text), np.bool_, size)
    places = np.arange(size)
    next_visible = np.append(np.minimum.accumulate(np.where(visible, places, size)[::-1])[::-1], size)
    visible_end = np.append(0, np.maximum.accumulate(np.where(visible, places + 1, 0)))
    owns = (end > start) & (next_visible[start] < end)  # (T,): the token has a visible character
    if not owns.any():
        return start, start.copy()
    # What the tokenizer dropped belongs to the token before it; at the beginning, to the first token.
    first, last = next_visible[start], visible_end[end]
    beginnings = np.unique(first[owns])  # in order, at most T
    num_before = np.searchsorted(beginnings, first, side="right")  # (T,): the index of the next beginning
    next_beginning = np.append(beginnings, len(visible_end) - 1)[np.minimum(num_before, len(beginnings))]
    last = np.maximum(last, visible_end[next_beginning])
    first = np.where(first == beginnings[0], next_visible[0], first)
    return np.where(owns, first, start), np.where(owns, last, start)


def tags_of(spans: Sequence[Span], start: NDArray[Any], end: NDArray[Any], length: int) -> NDArray[np.int8]:
    """Tags each token with NOTHING, OUTSIDE or the number of the label of a span that it shares a character with.

    Of several spans, the one that covers the token's first marked character counts; of several there, the first.

    Args:
        start: The beginnings of the tokens' extents. Shape (T,), like `end`.
        end: Their ends.
        length: The text's length in characters.
    """
    tags = np.where(end > start, OUTSIDE, NOTHING).astype(np.int8)
    if not spans:
        return tags
    marks = np.zeros(length + 1, np.int8)  # (C + 1,): the label of each character
    for span in reversed(spans):  # backwards, so that where spans overlap the first one stays
        marks[span.start : span.end] = _NUMBERS.get(span.label, UNTYPED_TAG)
    num_marked = np.append(0, np.cumsum(marks[:-1] > 0))  # (C + 1,): marked characters before each place
    touched = np.flatnonzero((num_marked[end] > num_marked[start]) & (tags == OUTSIDE))
    for token in touched:
        inside = marks[start[token] : end[token]]
        tags[token] = inside[np.argmax(inside > 0)]  # argmax finds the first marked character
    return tags
