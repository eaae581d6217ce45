"""Turns probabilities of tokens into spans of characters."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Found:
    """Spans in the order of the text [spans each].

    Args:
        start: First character.
        end: Behind the last character.
        first: First token.
        last: Last token.
    """

    start: Ints
    end: Ints
    first: Ints
    last: Ints


def agreeing(
    found: Found, called: NDArray[np.bool_], start: Ints, end: Ints, probability: Floats, owner: Ints
) -> Found:
    """Makes spans agree with the labels: none in a text that is not called, and one at least in each that is.

    A called text without a span gets its likeliest token; one without any visible token stays without.

    Args:
        called: Which texts are called hallucinated [texts].
        start, end, probability, owner: As `find_spans` got them.
    """
    kept = called[owner[found.first]]
    bare = called.copy()
    bare[owner[found.first]] = False
    # The visible tokens of bare texts by text, the likeliest first; of each text the first is taken.
    tokens = np.flatnonzero(bare[owner] & (end > start))
    tokens = tokens[np.lexsort((-probability[tokens], owner[tokens]))]
    tokens = tokens[np.flatnonzero(np.diff(owner[tokens], prepend=-1))]
    first, last = np.append(found.first[kept], tokens), np.append(found.last[kept], tokens)
    order = np.argsort(first, kind="stable")
    begins, stops = np.append(found.start[kept], start[tokens]), np.append(found.end[kept], end[tokens])
    return Found(begins[order], stops[order], first[order], last[order])


def find_spans(
    start: Ints,
    end: Ints,
    probability: Floats,
    *,
    threshold: float,
    merge_gap: int = 0,
    min_length: int = 1,
    owner: Ints | None = None,
) -> Found:
    """Finds runs of tokens from the threshold on; neighbours are joined over the white space between them.

    Args:
        start: First character of each token, in order; equal to `end` where the token stands for none.
        merge_gap: Spans with at most this many characters between them become one.
        min_length: Spans of fewer characters are dropped, after merging.
        owner: Which text each token belongs to, where there are several; spans never reach across.
    """
    visible = np.flatnonzero(end > start)
    hot = np.flatnonzero(probability[visible] >= threshold)
    if not len(hot):
        nothing = np.zeros(0, np.int64)
        return Found(nothing, nothing, nothing, nothing)
    tokens = visible[hot]
    starts, ends = start[tokens], end[tokens]
    near = (np.diff(hot) == 1) | (starts[1:] - ends[:-1] <= merge_gap)
    if owner is not None:
        near &= owner[tokens[1:]] == owner[tokens[:-1]]
    begins = np.flatnonzero(np.append(True, ~near))
    lasts = np.append(begins[1:], len(tokens)) - 1
    found_end = np.maximum.reduceat(ends, begins)
    keep = found_end - starts[begins] >= min_length
    return Found(starts[begins][keep], found_end[keep], tokens[begins][keep], tokens[lasts][keep])
