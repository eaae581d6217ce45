"""Variants keep what a row says: the same passages in another order, the same words in another spelling."""

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.records import Example, Turn
from faithkit_workflows.audit.measures import (
    CLAIM,
    IRRELEVANT,
    LATE,
    LONG,
    REPEATED,
    SHUFFLED,
    SPACES,
    TURN,
    UNICODE,
    make_variant,
)
from faithkit_workflows.audit.mutations import Document
from faithkit_workflows.audit.target import PASSAGES, passages_of
from tests.data_modules.examples import example

OTHERS = [Document("other", ("A filler about ducks.", "A filler about geese.")), Document("g", ("Of the same group.",))]


def row(response: str, *passages: str) -> Example:
    return example(id="a", group="g", knowledge="\n\n".join(passages), response=response, meta={PASSAGES: passages})


def vary(one: Example, name: str, long_words: int = 20) -> Example:
    made = make_variant(one, name, OTHERS, long_words=long_words, seed=0)
    assert made is not None and made.id == f"{name}/a" and made.knowledge == "\n\n".join(passages_of(made))
    return made


def test_passages_are_shuffled_repeated_added_and_surrounded() -> None:
    one = row("All is well.", "First.", "Second.", "Third.")
    own = list(passages_of(one))
    assert sorted(passages_of(vary(one, SHUFFLED))) == sorted(own) and passages_of(vary(one, SHUFFLED)) != tuple(own)
    assert list(passages_of(vary(one, REPEATED))) == own * 2
    (added,) = set(passages_of(vary(one, IRRELEVANT))) - set(own)
    assert added in OTHERS[0].passages, "never one of its own group"
    first, last = (list(passages_of(vary(one, name))) for name in (LONG, LATE))
    assert first[:3] == own == last[-3:] and first[3:] == last[:-3]
    assert sum(len(text.split()) for text in first[3:]) >= 20


@pytest.mark.parametrize("question", [None, "Is it red?"])
def test_an_earlier_turn_makes_the_claim_between_the_same_question_twice(question: str | None) -> None:
    one = row("It is blue.", "It is red.")
    if question:
        one = replace(one, history=(Turn(speaker="user", text=question),))
    first, claim, last = vary(one, CLAIM).history
    assert first == last and first.speaker == "user" and question in (None, last.text)
    assert (claim.speaker, claim.text) == ("assistant", one.response)
    other = vary(one, TURN).history
    assert (other[0], other[2]) == (first, last) and other[1].text != claim.text
    assert vary(one, CLAIM).response == vary(one, TURN).response == one.response


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=80))
def test_spelling_changes_no_word(text: str) -> None:
    one = row(text, "First.")
    for name in (SPACES, UNICODE):
        made = make_variant(one, name, OTHERS, long_words=20, seed=0)
        if made is not None and name == SPACES:
            assert made.response.split() == text.split()
        elif made is not None:
            letters = [c for c in unicodedata.normalize("NFKD", made.response) if c.isalnum()]
            assert letters == [c for c in unicodedata.normalize("NFKD", text) if c.isalnum()]
