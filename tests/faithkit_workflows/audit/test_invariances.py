"""Variants keep what a row says: the same passages in another order, the same words in another spelling."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.records import FAITHFUL, HALLUCINATED, Example
from faithkit_workflows.audit.invariances import (
    COPIED,
    IRRELEVANT,
    LATE,
    LONG,
    OPENING,
    REPEATED,
    SHUFFLED,
    SPACES,
    UNICODE,
    VARIANTS,
    choose_rows,
    make_variant,
)
from faithkit_workflows.audit.material import read_built_in
from faithkit_workflows.audit.mutations import Document, make_cases
from faithkit_workflows.audit.target import PASSAGES, passages_of

OTHERS = [Document("other", ("A filler about ducks.", "A filler about geese.")), Document("g", ("Of the same group.",))]


def row(response: str, *passages: str) -> Example:
    knowledge, meta = "\n\n".join(passages), {PASSAGES: passages}
    return Example(
        id="a", source="s", split="all", group="g", knowledge=knowledge, response=response, label=FAITHFUL, meta=meta
    )


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


def test_what_a_variant_does_not_change_is_no_row() -> None:
    one = row("All is well.", "First.")
    assert make_variant(one, SHUFFLED, OTHERS, long_words=20, seed=0) is None
    assert make_variant(one, UNICODE, OTHERS, long_words=20, seed=0) is None
    assert make_variant(one, IRRELEVANT, [OTHERS[1]], long_words=20, seed=0) is None


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


@pytest.mark.parametrize(
    ("response", "opened"),
    [
        ("The mill is old.", "According to the text, the mill is old."),
        ("Oslo is cold.", "According to the text, Oslo is cold."),
    ],
)
def test_an_opening_keeps_names(response: str, opened: str) -> None:
    assert vary(row(response, "First."), OPENING).response == opened


def test_a_copy_is_a_part_of_its_source() -> None:
    assert vary(row("Wrong.", "The mill is old."), COPIED).response == "The mill is old."


def test_rows_of_both_labels_are_chosen_alternately() -> None:
    cases = make_cases(read_built_in(), [], num_cases=10)
    chosen = choose_rows(cases, [], 12)
    assert [one.label for one in chosen] == [FAITHFUL, HALLUCINATED] * 6
    assert len({one.id for one in chosen}) == 12 and len({one.group for one in chosen}) >= 5
    assert all(make_variant(chosen[0], name, OTHERS, long_words=9, seed=0) or name in (UNICODE,) for name in VARIANTS)
