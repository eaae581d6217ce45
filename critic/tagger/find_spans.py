"""Converts token probabilities to character spans."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FoundSpans:
    """Spans in the order of the text [spans each].

    Args:
        start: First character.
        end: After the last character.
        first: First token.
        last: Last token.
    """

    start: Ints
    end: Ints
    first: Ints
    last: Ints


def match_labels(
    found: FoundSpans,
    is_hallucinated: NDArray[np.bool_],
    start: Ints,
    end: Ints,
    probability: Floats,
    owner: Ints,
) -> FoundSpans:
    """Makes spans agree with labels: no span in a faithful text, at least one in each hallucinated text.

    A hallucinated text without a span gets its most probable token, if it has visible tokens.

    Args:
        is_hallucinated: The label of each text [texts].
        start, end, probability, owner: As for `find_spans`.
    """
    kept = is_hallucinated[owner[found.first]]
    lacks_span = is_hallucinated.copy()
    lacks_span[owner[found.first]] = False
    # The visible tokens of these texts, the most probable first; the first of each text is taken.
    tokens = np.flatnonzero(lacks_span[owner] & (end > start))
    tokens = tokens[np.lexsort((-probability[tokens], owner[tokens]))]
    tokens = tokens[np.flatnonzero(np.diff(owner[tokens], prepend=-1))]
    first, last = np.append(found.first[kept], tokens), np.append(found.last[kept], tokens)
    order = np.argsort(first, kind="stable")
    begins, stops = np.append(found.start[kept], start[tokens]), np.append(found.end[kept], end[tokens])
    return FoundSpans(begins[order], stops[order], first[order], last[order])


def find_spans(
    start: Ints,
    end: Ints,
    probability: Floats,
    *,
    threshold: float,
    merge_gap: int = 0,
    min_length: int = 1,
    owner: Ints | None = None,
) -> FoundSpans:
    """Finds runs of tokens with at least the threshold, including the white space between them.

    Args:
        start: First character of each token, in order; equal to `end` for a token without characters.
        merge_gap: Spans with at most this many characters between them become one.
        min_length: Spans of fewer characters are dropped, after merging.
        owner: The text of each token; a span never crosses texts.
    """
    visible = np.flatnonzero(end > start)
    above = np.flatnonzero(probability[visible] >= threshold)
    if not len(above):
        empty = np.zeros(0, np.int64)
        return FoundSpans(empty, empty, empty, empty)
    tokens = visible[above]
    starts, ends = start[tokens], end[tokens]
    is_joined = (np.diff(above) == 1) | (starts[1:] - ends[:-1] <= merge_gap)
    if owner is not None:
        is_joined &= owner[tokens[1:]] == owner[tokens[:-1]]
    begins = np.flatnonzero(np.append(True, ~is_joined))
    lasts = np.append(begins[1:], len(tokens)) - 1
    found_end = np.maximum.reduceat(ends, begins)
    keep = found_end - starts[begins] >= min_length
    return FoundSpans(starts[begins][keep], found_end[keep], tokens[begins][keep], tokens[lasts][keep])
