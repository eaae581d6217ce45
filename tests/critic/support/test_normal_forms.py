"""Words with equal meaning have equal normal forms, and every text can be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critic.support.normal_forms import NUMBER, opposites, read_quantities, read_words


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1,500", "fifteen hundred"),
        ("24", "twenty-four"),
        ("3 million", "3000000"),
        ("5 pm", "17:00"),
        ("9:30 am", "9:30"),
        ("20 mg", "twenty milligrams"),
        ("EUR 79", "79 euros"),
        ("the 21st of Sept", "the 21 of September"),
        ("it isn't open", "it not open"),
        ("every country", "all countries"),
    ],
)
def test_other_notations_have_the_same_normal_form(first: str, second: str) -> None:
    assert sorted(word.norm for word in read_words(first)) == sorted(word.norm for word in read_words(second))


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ("24 months", "two years", True),
        ("90 minutes", "1.5 hours", True),
        ("1000 mg", "1 g", True),
        ("five working days", "5 days", True),
        ("24 months", "24 weeks", False),
        ("79 euros per month", "EUR 79", True),
        ("60 requests per minute", "60 minutes", False),
    ],
)
def test_quantities_are_compared_with_their_units(first: str, second: str, equal: bool) -> None:
    one, other = (next(iter(read_quantities(read_words(text)).values())) for text in (first, second))
    assert one.equals(other) == equal


def test_opposites_are_listed_or_have_a_negative_prefix() -> None:
    assert "reduc" in opposites("increas")
    assert "unavailable" in opposites("available") and "available" in opposites("unavailable")
    assert "grow" not in opposites("increas")


@given(st.text())
def test_words_are_in_order_and_within_the_text(text: str) -> None:
    end = 0
    for word in read_words(text):
        assert end <= word.start < word.end <= len(text)
        assert word.norm
        end = word.end


def test_yes_is_an_answer_only_at_the_start() -> None:
    kinds = [word.kind for word in read_words("Yes, it says yes to 2 cats.")]
    assert kinds.count("answer") == 1 and kinds.count(NUMBER) == 1
