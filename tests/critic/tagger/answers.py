"""Answers for the tests of taggers, and what holds of every result."""

from dataclasses import replace

import numpy as np
import pytest

from faithkit.records import SPAN_TYPES, Prediction

CONTEXT = ["the river is long", "the city is old and the king lives in it " * 12, "music", "a dog and a cat " * 8]
QUESTION = ["who plays music", "", "who lives in the city " * 20, "what is it"]
ANSWER = [
    "it is long and the king plays music",
    "the king plays music. " * 12,
    "i love it  very much,\r\nthink of the green tree",
    "dog",
]


def assert_same(first: Prediction, second: Prediction, atol: float = 1e-6) -> None:
    assert first.score == pytest.approx(second.score, abs=atol) and first.label == second.label
    assert [replace(span, score=0) for span in first.spans] == [replace(span, score=0) for span in second.spans]
    np.testing.assert_allclose([s.score for s in first.spans], [s.score for s in second.spans], atol=atol)


def check(tagged: Prediction, answer: str) -> None:
    assert tagged.label in ("faithful", "hallucinated") and 0 <= tagged.score <= 1
    end = 0
    for span in tagged.spans:
        assert end <= span.start < span.end <= len(answer), "in order, and none over another"
        assert span.text == answer[span.start : span.end] == span.text.strip()
        assert span.label in SPAN_TYPES and 0 <= span.score <= 1
        end = span.end
