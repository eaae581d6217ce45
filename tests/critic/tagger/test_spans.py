"""From probabilities of tokens to spans of whole words: joined, cleaned of specks, never across answers."""

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critic.tagger.span_calibration import Answers, FoundSpans, SpanCalibration, find_spans, widen_to_words

#             "the river is red"
START, END = np.array([0, 4, 10, 13]), np.array([3, 9, 12, 16])


def spans(found: FoundSpans) -> list[tuple[int, int]]:
    return list(zip(found.start.tolist(), found.end.tolist(), strict=True))


@pytest.mark.parametrize(
    ("probability", "options", "found"),
    [
        ((0.9, 0.5, 0.1, 0.8), {}, [(0, 9), (13, 16)]),
        ((0.1, 0.2, 0.3, 0.4), {}, []),
        ((), {}, []),
        ((0.1, 0.9, 0.1, 0.9), {"merge_gap": 3}, [(4, 9), (13, 16)]),
        ((0.1, 0.9, 0.1, 0.9), {"merge_gap": 4}, [(4, 16)]),
        ((0.9, 0.1, 0.9, 0.1), {"min_length": 3}, [(0, 3)]),
        ((0.9, 0.1, 0.9, 0.1), {"min_length": 4}, []),
        ((0.9, 0.1, 0.9, 0.1), {"min_length": 4, "merge_gap": 7}, [(0, 12)]),  # specks are dropped after joining
    ],
)
def test_runs_become_spans(probability: tuple[float, ...], options: Any, found: list[tuple[int, int]]) -> None:
    size = len(probability)
    tokens = START[:size], END[:size], np.array(probability), np.zeros(size, int)
    assert spans(find_spans(*tokens, threshold=0.5, **options)) == found


def test_tokens_that_stand_for_nothing_neither_cut_nor_mark() -> None:
    start, end = np.array([0, 4, 4, 4]), np.array([3, 4, 9, 4])
    found = find_spans(start, end, np.array([0.9, 0.0, 0.9, 1.0]), np.zeros(4, int), threshold=0.5)
    assert spans(found) == [(0, 9)] and (found.first[0], found.last[0]) == (0, 2)
    assert spans(find_spans(start, start, np.ones(4), np.zeros(4, int), threshold=0.5)) == []


def test_spans_agree_with_the_labels_of_their_texts() -> None:
    """Three texts of two words: the first is called and marked, the second called and bare, the third not called."""
    start, end, owner = np.tile([0, 4], 3), np.tile([3, 9], 3), np.repeat([0, 1, 2], 2)
    probability = np.array([0.9, 0.1, 0.2, 0.3, 0.9, 0.9])
    none = np.zeros(6)
    words = {"count": 3, "odds": none, "missing": none, "share": none, "sentence": np.zeros(6, int)}
    answers = Answers(start=start, end=end, begin=start, stop=end, owner=owner, **words)  # type: ignore[arg-type]
    agreed = SpanCalibration().spans(answers, probability, np.array([True, True, False]))
    assert spans(agreed) == [(0, 3), (4, 9)] and owner[agreed.first].tolist() == [0, 1]
    assert spans(SpanCalibration().spans(answers, probability, np.zeros(3, bool))) == []


TOKENS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans(), st.booleans()), max_size=20)


@given(tokens=TOKENS, merge_gap=st.integers(0, 12), min_length=st.integers(1, 8))
def test_answers_together_are_as_alone(tokens: list[Any], merge_gap: int, min_length: int) -> None:
    rows: list[list[tuple[int, int, float]]] = [[]]
    for gap, size, hot, new in tokens:
        if new:
            rows.append([])
        begin = (rows[-1][-1][1] if rows[-1] else 0) + gap
        rows[-1].append((begin, begin + size, float(hot)))
    options = {"threshold": 0.5, "merge_gap": merge_gap, "min_length": min_length}

    def columns(row: list[tuple[int, int, float]]) -> tuple[np.ndarray, ...]:
        table = np.array(row, float).reshape(-1, 3)
        return table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2]

    owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    together = find_spans(*columns([token for row in rows for token in row]), owner, **options)  # type: ignore[arg-type]
    for place, row in enumerate(rows):
        mine = owner[together.first] == place if len(together.first) else np.zeros(0, bool)
        alone = spans(find_spans(*columns(row), np.zeros(len(row), int), **options))  # type: ignore[arg-type]
        assert [span for span, own in zip(spans(together), mine, strict=True) if own] == alone
        assert all(end - start >= min_length for start, end in alone)
        assert all(nxt[0] - last[1] > merge_gap for last, nxt in pairwise(alone))


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
