"""The tokenisations, side by side: caches and trained models depend on these very values."""

import re
from collections.abc import Callable
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit import words

ASCII = st.text(st.characters(max_codepoint=127))
# No marks of Thai to Khmer: they part words, but a text never has them behind another script's letters.
ANY = st.text(
    st.characters(codec="utf-8").filter(lambda c: not "\u0e00" <= c <= "\u17ff")
    | st.sampled_from("İıΣσςé'\u0301\u0307")
)
TEXT = "It’s Zoë's U.S. — don't! 3.5 do n't a_b"


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (words.unicode_words, "it s zoë s u s don t 3 5 do n t a_b"),
        (words.ascii_words, "it s zo s u s don t 3 5 do n t a b"),
        (words.unicode_content_words, "s zoë s u s don t 3 5 n t a_b"),
        (words.apostrophe_words, "it's zoë's u s don't 3 5 do n't a_b"),
        (words.apostrophe_content_words, "it's zoë's u s don't 3 5 n't a_b"),
        (words.answer_words, "it's zoë's u s don't 3 5 do n't a_b"),
        (words.words_and_marks, "it's zoë's u . s . — don't ! 3 . 5 do n't a_b"),
        (words.clitic_tokens, "it's zo s u . s . don't ! 3 . 5 don't a b"),
    ],
)
def test_a_change_of_any_value_asks_for_a_new_version(tokens: Callable[[str], list[str]], expected: str) -> None:
    assert tokens(TEXT) == expected.split() and words.VERSION == 2


def test_words_leave_out_what_any_text_has_or_articles_alone() -> None:
    assert words.answer_words("The end of a day") == ["end", "of", "day"]
    assert words.unicode_content_words("It is the Deepest lake of 3 lakes") == ["deepest", "lake", "3", "lakes"]
    assert words.apostrophe_content_words("The cat is on the mat") == ["cat", "mat"]


@given(ASCII)
def test_ascii_words_are_what_plain_patterns_find(text: str) -> None:
    low = text.lower()
    assert words.unicode_words(text) == re.findall(r"\w+", low)
    assert words.apostrophe_words(text) == re.findall(r"\w+(?:'\w+)*", low)
    assert words.words_and_marks(text) == re.findall(r"\w+(?:'\w+)*|[^\w\s]", low)
    assert words.cased_words(text) == re.findall(r"\w+", text)
    assert list(words.word_places(text)) == [(*found.span(), found[0]) for found in re.finditer(r"\w+", low)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Zu\u0308rich Ångström", "zürich ångström"),
        ("İSTANBUL I\u0307stanbul", "i\u0307stanbul i\u0307stanbul"),
        ("ΟΔΟΣ'Α", "οδος α"),
        ("यह हिन्दी है", "यह हिन्दी है"),
        ("כָּל הָאָדָם", "כָּל הָאָדָם"),
        ("1\ufe0f\u20e3 \u0301 ❤\ufe0f", "1"),  # a mark needs a letter before it, and an emoji's is none
        ("ที่นี่", "ท น"),  # in a script without spaces a mark goes on parting
        ("\u1025\u102e", "\u1026"),
    ],
)
def test_marks_belong_to_the_word_of_their_letter(text: str, expected: str) -> None:
    assert words.unicode_words(text) == [normalize("NFC", word) for word in expected.split()]
    assert words.apostrophe_words(text.replace("'", " ")) == words.unicode_words(text)


@given(ANY)
def test_composed_and_decomposed_text_have_the_same_words(text: str) -> None:
    for tokens in (words.unicode_words, words.cased_words, words.apostrophe_words):
        assert tokens(text) == tokens(normalize("NFC", text)) == tokens(normalize("NFD", text))


@given(ANY)
def test_places_point_into_the_text_as_it_stands(text: str) -> None:
    found = list(words.word_places(text))
    assert [word for *_, word in found] == words.unicode_words(text)
    assert [normalize("NFC", text[begin:end]) for begin, end, _ in found] == words.cased_words(text)
    assert [normalize("NFC", word.lower()) for word in words.cased_words(text)] == words.unicode_words(text)
    assert list(words.word_places(text, 2, 7)) == [(a + 2, b + 2, w) for a, b, w in words.word_places(text[2:7])]
