"""Documents are divided as the packages of known detectors divide them."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critic.entailment.checker import counter, divide, split_sentences
from faithkit.published.known_detectors import BY_SENTENCES, EVEN, LINES, TREEBANK_WORDS, WORDS, Windows

TEXT = "One two three. Four five.\nSix seven eight nine. Ten. Eleven twelve."


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


def test_without_windows_a_document_is_read_at_once() -> None:
    assert divide(TEXT, None, words) == [TEXT]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (100, [TEXT]),
        (5, ["One two three. Four five.", "Six seven eight nine. Ten.", "Eleven twelve."]),
        (2, ["One two three.", "Four five.", "Six seven eight nine.", "Ten.", "Eleven twelve."]),
    ],
)
def test_windows_of_lines_hold_whole_sentences_and_keep_line_breaks(size: int, expected: list[str]) -> None:
    assert windows(LINES, size) == expected


def test_windows_of_sentences_have_one_a_line_and_an_empty_one_before_a_sentence_that_is_too_long() -> None:
    text = "One two three. Four five. Six seven eight nine. Ten."
    assert windows(BY_SENTENCES, 5, text) == ["One two three.\nFour five.", "Six seven eight nine.\nTen."]
    assert windows(BY_SENTENCES, 2, "One two three. Four five.") == ["", "One two three.", "Four five."]


def test_even_windows_have_equally_many_sentences() -> None:
    text = "One two. Three four. Five six. Seven eight. Nine ten."
    assert windows(EVEN, 100, text) == [text]
    assert windows(EVEN, 9, text) == ["One two. Three four.", "Five six. Seven eight.", "Nine ten."]


def test_marks_count_as_words_of_the_treebank() -> None:
    assert counter(TREEBANK_WORDS, None, 0)(["It's red, isn't it?", "No."]) == [8, 2]


@given(st.text(alphabet="ab .\n!", max_size=60), st.sampled_from([LINES, BY_SENTENCES, EVEN]), st.integers(1, 9))
def test_windows_keep_every_character_in_order(text: str, rule: str, size: int) -> None:
    found = windows(rule, size, text)
    assert found and "".join("".join(found).split()) == "".join(text.split())
