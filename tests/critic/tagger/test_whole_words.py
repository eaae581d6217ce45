"""No span begins or ends within a word, whatever the script, and tokens that stand for nothing stay so."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critic.tagger.calibration_features import widen_to_words


def widened(text: str, *pieces: str) -> list[str]:
    """Widens the pieces of a text, in which they stand behind each other."""
    places, at = [], 0
    for piece in pieces:
        at = text.index(piece, at)
        places.append((at, at + len(piece)))
        at += len(piece)
    start, end = np.array(places, np.int64).T
    begin, stop = widen_to_words(start, end, np.zeros(len(start), np.int64), [text])
    return [text[a:b] for a, b in zip(begin, stop, strict=True)]


@pytest.mark.parametrize(
    ("text", "piece", "word"),
    [
        ("It causes gingivitis.", "givitis", "gingivitis"),
        ("It causes gingivitis.", "causes gin", "causes gingivitis"),
        ("They don't know.", "don", "don't"),
        ("They don’t know.", "t know", "don’t know"),
        ("It cost 1,250.5 euros.", "250", "1,250.5"),
        ("A well-known man.", "known", "known"),
        ("Born in Zu\u0308rich.", "u", "Zu\u0308rich"),
        ("यह हिन्दी है", "न्दी", "हिन्दी"),
        ("東京は日本の首都です", "日本", "日本"),
        ("Le 3e 12e.", "3", "3e"),
        ("red, green", ", ", ", "),
    ],
)
def test_a_piece_becomes_the_words_that_it_touches(text: str, piece: str, word: str) -> None:
    assert widened(text, piece) == [word]


@given(text=st.text(max_size=40), places=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8))
def test_widened_tokens_hold_the_token_and_cut_no_run_of_letters(text: str, places: list[tuple[int, int]]) -> None:
    bounds = sorted(tuple(sorted((min(a, len(text)), min(b, len(text))))) for a, b in places)
    start, end = np.array(bounds, np.int64).reshape(-1, 2).T
    begin, stop = widen_to_words(start, end, np.zeros(len(start), np.int64), [text])
    assert (begin <= start).all() and (stop >= end).all() and (stop <= len(text)).all() and (begin >= 0).all()
    for first, last, a, b in zip(start, end, begin, stop, strict=True):
        if first == last:
            assert (a, b) == (first, last)
            continue
        for word in re.finditer("[a-zA-Z]+", text):
            assert not word.start() < a < word.end() and not word.start() < b < word.end()
