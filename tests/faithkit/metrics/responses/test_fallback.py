import numpy as np
import pytest

from faithkit.metrics.responses.measure_responses import fallback_rates, is_fallback


@pytest.mark.parametrize(
    "text",
    [
        "I don't know, but it was founded in 1990.",
        "I’m not sure when it opened.",
        "I am just a bot, so I have never eaten it.",
        "Hmm. Not sure, but they have sold millions.",
        "I really do not have any information about that.",
        "I can't say what is best.",
        "I have no idea how old it is!",
        "Sorry, I am unaware of his age.",
        "I've never heard of them. The band began in 1993.",
    ],
)
def test_texts_that_say_they_do_not_know(text):
    assert is_fallback(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I didn't know that! It is an old city.",
        "Many don't know that it means luck.",
        "You can't grow them without enough water.",
        "I'm not sure if you know this, but she won.",
        "It does not know borders.",
        "I do know that it is old.",
        "I'm sure.",
    ],
)
def test_texts_that_do_not(text):
    assert not is_fallback(text)


def test_unanswerable_turns_are_those_whose_gold_response_falls_back():
    said = ["I don't know.", "It is red.", "I am not sure.", "Blue.", "No idea."]
    gold = ["I'm not sure.", "I have no idea.", "It is green.", "Blue.", None]
    found = fallback_rates(said, gold)
    assert found["fallback"].tolist() == [1, 0, 1, 0, 1]
    np.testing.assert_equal(found["fallback_unanswerable"], [1, 0, np.nan, np.nan, np.nan])
    np.testing.assert_equal(found["fallback_answerable"], [np.nan, np.nan, 1, 0, np.nan])
