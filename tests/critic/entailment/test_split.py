"""Documents are divided as the packages of known detectors divide them."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critic.entailment.checker import counter, divide, split_sentences
from faithkit.published.known_detectors import BY_SENTENCES, EVEN, LINES, TREEBANK_WORDS, WORDS, Windows

TEXT = "One two three. Four five.\nSix seven eight nine. Ten. Eleven twelve."


NINE = "One two three. Four five. Six seven eight nine. Ten."
PAIRS = "One two. Three four. Five six. Seven eight. Nine ten."


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def windows(rule: str, size: int, text: str = TEXT) -> list[str]:
    return divide(text, Windows(rule=rule, unit=WORDS, size=size), words)


def test_sentences_end_as_in_english() -> None:
    text = "Dr. Smith lives in Washington, D.C. in winter. He was born on Jan. 5, 1950! Was he?"
    assert split_sentences(text) == [
        "Dr. Smith lives in Washington, D.C. in winter.",
        "He was born on Jan. 5, 1950!",
        "Was he?",
    ]


@pytest.mark.parametrize(
    ("rule", "size", "text", "expected"),
    [
        (LINES, 100, TEXT, [TEXT]),  # whole sentences, and their line breaks
        (LINES, 5, TEXT, ["One two three. Four five.", "Six seven eight nine. Ten.", "Eleven twelve."]),
        (LINES, 2, TEXT, ["One two three.", "Four five.", "Six seven eight nine.", "Ten.", "Eleven twelve."]),
        (BY_SENTENCES, 5, NINE, ["One two three.\nFour five.", "Six seven eight nine.\nTen."]),  # one a line
        (BY_SENTENCES, 2, "One two three. Four five.", ["", "One two three.", "Four five."]),  # one is too long
        (EVEN, 100, PAIRS, [PAIRS]),  # equally many sentences
        (EVEN, 9, PAIRS, ["One two. Three four.", "Five six. Seven eight.", "Nine ten."]),
    ],
)
def test_windows_are_those_of_their_rule(rule: str, size: int, text: str, expected: list[str]) -> None:
    assert windows(rule, size, text) == expected
    assert divide(text, None, words) == [text], "without windows a document is read at once"


def test_marks_count_as_words_of_the_treebank() -> None:
    assert counter(TREEBANK_WORDS, None, 0)(["It's red, isn't it?", "No."]) == [8, 2]


@given(st.text(alphabet="ab .\n!", max_size=60), st.sampled_from([LINES, BY_SENTENCES, EVEN]), st.integers(1, 9))
def test_windows_keep_every_character_in_order(text: str, rule: str, size: int) -> None:
    found = windows(rule, size, text)
    assert found and "".join("".join(found).split()) == "".join(text.split())
