"""The tokenisations, side by side: caches and trained models depend on these very values."""

from collections.abc import Callable

import pytest

from faithkit import words

TEXT = "It’s Zoë's U.S. — don't! 3.5 do n't a_b"


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (words.unicode_words, "it s zoë s u s don t 3 5 do n t a_b"),
        (words.ascii_words, "it s zo s u s don t 3 5 do n t a b"),
        (words.ascii_content_words, "s zo s u s don t 3 5 n t b"),
        (words.apostrophe_words, "it's zoë's u s don't 3 5 do n't a_b"),
        (words.apostrophe_content_words, "it's zoë's u s don't 3 5 n't a_b"),
        (words.answer_words, "it's zoë's u s don't 3 5 do n't a_b"),
        (words.words_and_marks, "it's zoë's u . s . — don't ! 3 . 5 do n't a_b"),
        (words.clitic_tokens, "it's zo s u . s . don't ! 3 . 5 don't a b"),
    ],
)
def test_a_change_of_any_value_asks_for_a_new_version(tokens: Callable[[str], list[str]], expected: str) -> None:
    assert tokens(TEXT) == expected.split() and words.VERSION == 1


def test_answers_lose_their_articles_alone() -> None:
    assert words.answer_words("The end of a day") == ["end", "of", "day"]


def test_content_words_leave_out_what_any_text_has() -> None:
    assert words.ascii_content_words("It is the Deepest lake of 3 lakes") == ["deepest", "lake", "3", "lakes"]
    assert words.apostrophe_content_words("The cat is on the mat") == ["cat", "mat"]
