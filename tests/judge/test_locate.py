"""Quoted parts are found in a response exactly, by their words, or by most of them; else they are counted."""

from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from judge.reply import locate, locate_all

RESPONSE = "The Danube flows through twelve countries, and Ada Lovelace was born beside it in 1815."
WORDS = st.lists(st.sampled_from("river city king music food year people water stone book".split()), min_size=1)


def found(part: str, response: str = RESPONSE) -> str | None:
    place = locate(part, response)
    return None if place is None else response[slice(*place)]


def test_the_rule_by_hand() -> None:
    assert found("twelve countries") == "twelve countries"
    assert found("TWELVE  countries.") == "twelve countries"
    assert found("Danube, flows through twelve") == "Danube flows through twelve"
    assert found("Ada Lovelace was born near it in 1815") == "Ada Lovelace was born beside it in 1815"
    assert found("river city king music food", "a river city stone music food") == "river city stone music food", (
        "4 of 5"
    )
    assert found("river city king music", "a river city stone food") is None
    assert found("(a) first", "(a) first, (b) second") == "(a) first", "with its marks, where it stands so"
    assert found("Grace Hopper wrote a compiler") is None
    assert found("") is None and found("...") is None and found("twelve", "") is None


@given(WORDS, WORDS, WORDS)
def test_what_is_quoted_word_for_word_is_found_where_it_first_stands(a: list[str], b: list[str], c: list[str]) -> None:
    part, response = " ".join(b), " ".join(a + b + c)
    place = locate(part, response)
    assert place == (response.find(part), response.find(part) + len(part))


@given(WORDS, WORDS, WORDS)
def test_case_and_punctuation_change_nothing_of_what_is_found(a: list[str], b: list[str], c: list[str]) -> None:
    response = " ".join([*a, "Zebra", *b, "Zebra", *c])
    words = ["Zebra", *b, "Zebra"]
    place = locate(", ".join(words).upper(), response)
    assert place is not None and response[slice(*place)].split() == words


@given(st.lists(st.text(max_size=12), max_size=4), st.text(max_size=60))
def test_spans_lie_in_the_response_in_order_and_apart(parts: list[str], response: str) -> None:
    spans, missed = locate_all(parts, response)
    assert 0 <= missed <= len(parts)
    places = [(span.start, span.end) for span in spans]
    assert places == sorted(places) and all(0 <= start < end <= len(response) for start, end in places)
    assert all(first[1] < second[0] for first, second in pairwise(places))


def test_parts_that_overlap_become_one_span_and_missing_ones_are_counted() -> None:
    spans, missed = locate_all(["flows through twelve", "twelve countries", "a red fox", "1815"], RESPONSE)
    assert [RESPONSE[span.start : span.end] for span in spans] == ["flows through twelve countries", "1815"]
    assert missed == 1


@given(WORDS)
def test_words_that_the_response_lacks_are_not_found(words: list[str]) -> None:
    assume(not set(words) & set(RESPONSE.lower().split()))
    assert locate(" ".join(words), RESPONSE) is None


def test_composed_words_are_found_where_they_stand_decomposed() -> None:
    response = "He opened a cafe\u0301 in Zu\u0308rich, they say."
    found = locate("Café in   Zürich!", response)
    assert found is not None and response[slice(*found)] == "cafe\u0301 in Zu\u0308rich"
