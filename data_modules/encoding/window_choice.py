"""Chooses the windows of a long text that share most with a response.

A token that few windows have counts more: ln((windows + 1) / windows with the token). The tokens of a chosen window
count half for the next one, so that two windows that overlap are not chosen for the same words.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.ragged import Ragged, offsets_of

REPEATED = 0.5  # weight of a token that a chosen window has already
Ints = NDArray[np.int64]


def choose_windows(
    responses: Ragged, texts: Ragged, text: Ints, counts: Ints, start: Ints, size: Ints, most: int
) -> Ints:
    """Chooses at most `most` windows for each of R responses; of windows that share as much, the first ones.

    Args:
        responses: Tokens of each response (R rows).
        texts: Tokens of the texts that the windows lie in.
        text: The text of each response. Shape (R,).
        counts: Windows of each response, one response's behind each other. Shape (R,); they add up to W.
        start: First token of each window in its text; within a response ascending. Shape (W,).
        size: Tokens of each window. Shape (W,).

    Returns:
        The numbers of the windows that are kept, ascending.
    """
    keep: list[Ints] = []
    for number, (begin, count) in enumerate(zip(offsets_of(counts)[:-1].tolist(), counts.tolist(), strict=True)):
        chosen = np.arange(count)
        if count > most:
            starts, sizes = start[begin : begin + count], size[begin : begin + count]
            chosen = best_windows(responses.row(number), texts.row(int(text[number])), starts, starts + sizes, most)
        keep.append(begin + chosen)
    return np.concatenate([np.zeros(0, np.int64), *keep])


def best_windows(response: NDArray[np.int32], text: NDArray[np.int32], start: Ints, end: Ints, most: int) -> Ints:
    """Chooses `most` windows of one text, ascending.

    Args:
        response: Tokens of the response.
        text: Tokens of the text.
        start: First token of each window, ascending.
        end: The token behind each window, ascending.
    """
    contains = _shared_tokens(response, text, start, end)  # [windows, distinct tokens]
    frequency = contains.sum(0)
    weight = np.where(frequency > 0, np.log((1 + len(start)) / np.maximum(frequency, 1)), 0).astype(np.float32)
    return np.sort(np.fromiter(_take_best(contains, weight, most), np.int64, most))


def _shared_tokens(response: NDArray[np.int32], text: NDArray[np.int32], start: Ints, end: Ints) -> NDArray[np.float32]:
    """Says which window has which distinct token of the response: 1 or 0."""
    tokens = np.unique(response)
    column = np.full(1 + int(max(text.max(initial=0), tokens.max(initial=0))), -1)
    column[tokens] = np.arange(len(tokens))
    found = column[text]
    place = np.flatnonzero(found >= 0)
    # Of each place the first window that contains it, and how many do.
    first = np.searchsorted(end, place, side="right")
    count = np.searchsorted(start, place, side="right") - first
    contains = np.zeros((len(start), len(tokens)), np.float32)
    for step in range(int(count.max(initial=0))):
        inside = count > step
        contains[first[inside] + step, found[place[inside]]] = 1
    return contains


def _take_best(contains: NDArray[np.float32], weight: NDArray[np.float32], most: int) -> Iterator[int]:
    """Yields the best window, then the best with less weight for the tokens of the first, and so on."""
    is_left = np.ones(len(contains), bool)
    for _ in range(most):
        best = int(np.where(is_left, contains @ weight, -1).argmax())
        is_left[best] = False
        weight = np.where(contains[best] > 0, REPEATED * weight, weight)
        yield best
