"""Keys of rows: the same for a row that was only formatted in another way."""

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.provenance.row_keys import NO_KEY, RowKeys, row_keys, text_key
from faithkit.records import Example

ROW = Example(
    id="1",
    source="faithdial",
    split="train",
    group="7",
    knowledge="The Café's 2nd floor, opened in 1990.",
    response="It has a second floor!",
)


def keys_of(**changes: object) -> tuple[int, int, int]:
    keys = row_keys([replace(ROW, **changes)])  # type: ignore[arg-type]
    return keys.row[0], keys.knowledge[0], keys.group[0]


ACCENTS = st.characters(min_codepoint=0x300, max_codepoint=0x36F)
EUROPEAN = st.characters(max_codepoint=0x58F, exclude_characters="\u0483\u0484\u0485\u0486\u0487")  # to Armenian


def letters_and_digits(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text).lower()
    return "".join(character for character in decomposed if character.isalnum())


@given(
    text=st.text(EUROPEAN | ACCENTS | st.sampled_from("ﬁẞựⅫ①👍\ufe0f_ー北京"))
    | st.text(st.characters(max_codepoint=127))
)
def test_letters_and_digits_make_the_key_of_a_text_whose_marks_are_accents(text: str) -> None:
    assert text_key(text) == letters_and_digits(text)


@given(text=st.text())
def test_a_key_has_the_letters_and_digits_of_any_text_and_else_marks_alone(text: str) -> None:
    key = text_key(text)
    assert letters_and_digits(key) == letters_and_digits(text)
    assert all(c.isalnum() or unicodedata.category(c) in ("Mn", "Mc") for c in key)
    assert {text_key(unicodedata.normalize(form, text)) for form in ("NFC", "NFD", "NFKC", "NFKD")} == {key}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *[("कीमत दो सौ", "कामत दा सा"), ("राम की बेटी है", "राम का बेटा है"), ("かぎ", "かき"), ("バス", "パス")],
        *[("ก็", "กี่"), ("كِتَاب", "كُتَّاب"), ("ﾊﾞｽ", "ﾊﾟｽ")],
    ],
)
def test_marks_that_are_no_accents_tell_words_apart(one: str, other: str) -> None:
    assert text_key(one) != text_key(other)
    for text in (one, other):
        assert text_key(unicodedata.normalize("NFD", text)) == text_key(f" {text}!") == text_key(text)


@pytest.mark.parametrize(
    "knowledge",
    [
        "the cafe 's 2nd floor , opened in 1990 .",
        "THE CAFÉ’S 2ND FLOOR,\n\topened in 1990",
        unicodedata.normalize("NFD", ROW.knowledge),
    ],
)
def test_a_reformatted_row_has_the_same_keys(knowledge: str) -> None:
    assert keys_of(knowledge=knowledge, response="it has a second floor .", id="other") == keys_of()


def test_what_differs_has_other_keys() -> None:
    row, knowledge, group = keys_of()
    assert keys_of(response="It has a third floor!") == (keys_of(response="it has a third floor")[0], knowledge, group)
    assert keys_of(response="It has a third floor!")[0] != row
    other = keys_of(knowledge="The Café's 2nd floor, opened in 1991.")
    assert other[0] != row and other[1] != knowledge and other[2] == group
    for changes in ({"group": "8"}, {"split": "test"}, {"source": "wow"}):
        assert keys_of(**changes)[:2] == (row, knowledge) and keys_of(**changes)[2] != group
    assert keys_of(knowledge="ab", response="c")[0] != keys_of(knowledge="a", response="bc")[0]
    assert keys_of(response="👍")[0] != keys_of(response="👎")[0]


def test_knowledge_counts_before_any_cut_and_an_empty_one_not_at_all() -> None:
    assert keys_of(knowledge="floor", meta={"whole_knowledge": ROW.knowledge}) == keys_of()
    assert keys_of(knowledge=" ")[1] == NO_KEY and keys_of(knowledge="")[0] != NO_KEY
    assert keys_of(knowledge="", response=" ")[0] == NO_KEY
    assert all(len(keys) == 0 for keys in row_keys([])) and len(RowKeys._fields) == 3
