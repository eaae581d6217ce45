"""Values of an answer are compared with those of its context after normalisation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critic.support.values import compare_values, read_values

MANUAL = (
    "The warranty lasts 24 months. Rinse it for 30 seconds. Ships on 3 May 2026 from 20 to 60 euros. Room A-113. "
    "Open from 9 am to 5 pm. The lid weighs 1.5 kg and holds 12.3 million drops. Five cups a day, 40 percent sugar."
)


def relations(context: str, answer: str, question: str = "") -> dict[str, str]:
    return {pair.value.text: pair.relation for pair in compare_values(context, answer, question)}


@pytest.mark.parametrize(
    "answer",
    [
        "It lasts two years.",
        "Half a minute of rinsing, or 30 s.",
        "It ships on May 3rd, 2026, or 2026-05-03.",
        "It costs between 20 and 60 €, for example 35 euros.",
        "Room a113.",
        "Open 9:00 to 17:00.",
        "It weighs 1,500 grams.",
        "It holds about 12 million drops.",
        "Five cups daily.",
        "60 percent is something else than sugar.",
        "About two dozen months of warranty, roughly 25 months.",
    ],
)
def test_other_notations_conversions_and_sums_are_supported(answer: str) -> None:
    found = compare_values(MANUAL, answer)
    assert found and not [pair for pair in found if pair.is_unsupported]


@pytest.mark.parametrize(
    ("answer", "wrong", "closest"),
    [
        ("The warranty lasts 36 months.", "36 months", "24 months"),
        ("The warranty lasts 24 weeks.", "24 weeks", "24 months"),
        ("Rinse it for 50 seconds.", "50 seconds", "30 seconds"),
        ("It ships on 13 May 2026.", "13 May 2026", "3 May 2026"),
        ("Go to room A-131.", "A-131", "A-113"),
        ("The lid weighs 15 kg.", "15 kg", "1.5 kg"),
        ("Five cups a week.", "a week", "a day"),
        ("It has 45 percent sugar.", "45 percent", "40 percent"),
    ],
)
def test_another_value_is_different_and_names_that_of_the_context(answer: str, wrong: str, closest: str) -> None:
    [pair] = [pair for pair in compare_values(MANUAL, answer) if pair.is_unsupported]
    assert (pair.value.text, pair.closest and pair.closest.text) == (wrong, closest)


def test_a_value_of_the_question_is_not_judged_and_one_of_no_kind_is_absent() -> None:
    assert relations(MANUAL, "Yes, 700 volts are fine.", "Are 700 volts fine?") == {"700 volts": "in the question"}
    assert relations("The lid is red.", "The lid is 700 mm wide.") == {"700 mm": "absent"}


def test_a_count_is_judged_only_beside_a_count_of_the_same_thing() -> None:
    assert relations("The Danube flows through ten countries.", "It flows through twelve.")["twelve"] == "different"
    assert "two" not in relations("Wash it, then dry it. It has 9 parts.", "There are two steps.")


def test_contradictory_values_in_the_context_support_both() -> None:
    context = "The warranty lasts 24 months. Page 9 says that the warranty lasts 36 months."
    for months in (24, 36):
        assert not any(pair.is_unsupported for pair in compare_values(context, f"It lasts {months} months."))


VALUE_TEXTS = st.lists(
    st.sampled_from(
        "12 3.5 1,000 ½ half a an third two hundred and million % € euros kg months day per once 9:00 pm o'clock May "
        "2026 2026-13-45 A-1 °C degrees - to . , zorkmids thirty-one twenty Monday spring quarter of".split()
    )
    | st.text(max_size=4),
    max_size=14,
).map(" ".join)


@given(VALUE_TEXTS, VALUE_TEXTS)
def test_any_texts_are_compared_and_values_point_into_them(context: str, answer: str) -> None:
    for text in (context, answer):
        for value in read_values(text):
            assert text[value.start : value.end] == value.text != ""
    for pair in compare_values(context, answer):
        assert pair.closest is None or pair.closest in read_values(context)


@given(VALUE_TEXTS)
def test_a_context_supports_itself(text: str) -> None:
    assert not [pair for pair in compare_values(text, text) if pair.is_unsupported]


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("One euro fifty for each delay.", [1.5]),
        ("Two dollars fifty.", [2.5]),
        ("Two euros, 20 minutes later.", [2.0, 20.0]),
        ("5 euros 20 times.", [5.0, 20.0]),
        ("20 € 30 people.", [20.0, 30.0]),
        ("From 20 € to € 30.", [20.0, 30.0]),
    ],
)
def test_a_currency_belongs_to_one_number(text: str, amounts: list[float]) -> None:
    assert [value.amount for value in read_values(text)] == amounts
