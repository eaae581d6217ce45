"""BM25 by values worked out by hand, and what holds for any texts."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit_workflows.answering.retrieval import Bm25

WORDS = st.lists(st.sampled_from(["red", "blue", "long", "river", "the"]), max_size=8).map(" ".join)
TEXTS = st.text(max_size=40)


def test_scores_are_those_of_the_formula() -> None:
    index = Bm25(["red red fox", "blue fox", "a long blue river bank"])  # 3, 2 and 5 words, 10/3 on average
    red = log(1 + 2.5 / 1.5) * 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * 3 / (10 / 3)))
    fox = log(1 + 1.5 / 2.5) * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 3 / (10 / 3)))
    other_fox = log(1 + 1.5 / 2.5) * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 2 / (10 / 3)))
    assert index.scores("Red fox! Red?").tolist() == pytest.approx([red + fox, other_fox, 0.0])
    plain = Bm25(["red red fox", "blue fox"], k1=0.0, b=0.0)
    assert plain.scores("red").tolist() == pytest.approx([log(1 + 1.5 / 1.5), 0.0]), "without k1 a word counts once"


def test_the_best_come_first_and_those_without_a_word_never() -> None:
    index = Bm25(["The Danube is long.", "A cat sleeps.", "Is it long?", "Is it long?"])
    assert index.best("How long is the Danube?", 9) == ["The Danube is long.", "Is it long?", "Is it long?"]
    assert index.best("How long is the Danube?", 1) == ["The Danube is long."]
    assert index.best("penguins", 3) == [] and index.best("", 3) == [] and Bm25([]).best("red", 3) == []
    assert Bm25(["?!", ""]).best("red", 3) == []


@given(st.lists(TEXTS, max_size=6), TEXTS)
def test_any_texts_are_indexed_and_scores_are_finite_and_never_negative(passages: list[str], query: str) -> None:
    index = Bm25(passages)
    scores = index.scores(query)
    assert len(scores) == len(passages) and (scores >= 0).all() and (scores < 1e6).all()
    found = index.best(query, 3)
    assert len(found) <= 3 and set(found) <= set(passages)


@given(st.lists(WORDS, min_size=1, max_size=6), WORDS)
def test_the_order_and_repetition_of_a_querys_words_change_nothing(passages: list[str], query: str) -> None:
    index = Bm25(passages)
    turned = " ".join(reversed(query.split())).upper()
    assert index.scores(query).tolist() == pytest.approx(index.scores(f"{turned} {query}").tolist())
