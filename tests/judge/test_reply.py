"""Replies are read strictly (anything else is unparsed), and what a judge learns is read back."""

import json
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Span
from judge.judge import TRAINABLE
from judge.reply import ASKINGS, locate, locate_all, parse_steps, quoted_parts, read_list, read_verdict, target_text
from tests.data_modules.examples import example


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=4), st.data())
def test_a_list_that_was_cut_off_keeps_its_complete_parts(parts: list[str], data: st.DataObject) -> None:
    whole = json.dumps({"hallucinations": parts})
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    found = read_list(cut)
    assert found is None or found == parts[: len(found)]
    assert "]" in "".join(parts) or read_list(whole[:-2]) == parts


VERDICTS = {
    HALLUCINATED: [
        *("Yes", "yes.", "YES!", "  Yes, it does.", "**Yes**", "\"Yes\"", "“Yes”: twelve is wrong", "Yes\nIt says 12."),
        *("Yes - the year is wrong", "Yes: wrong", "*Yes*, because", "- yes"[2:], '{"hallucinated": true}'),
        *('```json\n{"verdict": "Yes"}\n```', "<think>No, wait. No.</think>\nYes.", "Yes the reply adds a name."),
        "<Think>\nNo.\nNo, wait.\n</Think>\nYes.",
    ],
    FAITHFUL: [
        *("No", "no, all of it is supported", "«No»", "No.\n", "**No.** The reply stays close.", '{"verdict": false}'),
    ],
    UNPARSED: [
        *("None", "Nobel won it.", "Yesterday", "Nothing is wrong", "Not at all", "yes-man", "No-one", "Nope", "Yess"),
        *("No doubt it is wrong.", "Yes and no.", "No one said so.", "Yes or No", "The answer is yes.", "", " ", "1"),
        *("{}", '{"hallucinated": "perhaps"}', '{"hallucinated": null}', "[true]", "yes’s", "I say No", "N", "Y"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("label", "text"), [(label, text) for label, texts in VERDICTS.items() for text in texts])
def test_a_reply_says_yes_or_no_and_what_only_looks_like_it_is_unparsed(label: str, text: str) -> None:
    assert read_verdict(text) == label


@given(st.text(alphabet=st.characters(categories=("L", "N")), min_size=1, max_size=8), st.sampled_from(["Yes", "No"]))
def test_a_longer_word_is_never_a_verdict(rest: str, word: str) -> None:
    assert read_verdict(word + rest) == UNPARSED


@given(st.text(max_size=60))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for read in (read_verdict, read_list, quoted_parts, partial(parse_steps, response="")):
        read(text)


@given(st.text(max_size=40), st.sampled_from([("Yes", HALLUCINATED), ("No", FAITHFUL)]))
def test_reasoning_before_the_last_line_never_changes_the_verdict(thought: str, verdict: tuple[str, str]) -> None:
    word, label = verdict
    assert parse_steps(f"{thought}\nAnswer: {word}", "").label == label
    assert parse_steps(f"{thought}\n**Final answer:** {word}.", "").label == label


@given(st.lists(st.text(min_size=1, max_size=20).filter(str.strip), max_size=4))
def test_a_json_list_of_parts_is_read_as_it_was_written(parts: list[str]) -> None:
    plain = json.dumps({"hallucinations": parts})
    assert read_list(plain) == read_list(f"Here it is:\n```json\n{plain}\n```") == parts
    for text in ("twelve countries", '{"hallucinations": "twelve"}', "[1, 2]", '["a", null]', "{}"):
        assert read_list(text) is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('Yes. "twelve countries" is wrong, and so is "long".', ["twelve countries", "long"]),
        ("“twelve” and „zwölf“ and «douze» and »tolv» and 「十二」", ["twelve", "zwölf", "douze", "tolv", "十二"]),
        ("It's not the reply's fault that 'twelve' isn't ten.", []),
        ('an open quote: "twelve', []),
        ('"" and " "', []),
        ("`twelve`", ["twelve"]),
    ],
)
def test_quoted_parts_in_the_marks_of_several_languages(text: str, parts: list[str]) -> None:
    assert quoted_parts(text) == parts


RESPONSE = "The Danube flows through twelve countries, and Ada Lovelace was born beside it in 1815."
WORDS = st.lists(st.sampled_from("river city king music food year people water stone book".split()), min_size=1)


@pytest.mark.parametrize(
    ("part", "response", "place"),
    [
        ("twelve countries", RESPONSE, "twelve countries"),
        ("TWELVE  countries.", RESPONSE, "twelve countries"),
        ("Danube, flows through twelve", RESPONSE, "Danube flows through twelve"),
        ("Ada Lovelace was born near it in 1815", RESPONSE, "Ada Lovelace was born beside it in 1815"),
        ("river city king music food", "a river city stone music food", "river city stone music food"),  # 4 of 5
        ("river city king music", "a river city stone food", None),
        ("(a) first", "(a) first, (b) second", "(a) first"),  # with its marks, where it stands so
        ("Café in   Zürich!", "A cafe\u0301 in Zu\u0308rich, they say.", "cafe\u0301 in Zu\u0308rich"),  # decomposed
        ("Grace Hopper wrote a compiler", RESPONSE, None),
        ("", RESPONSE, None),
        ("...", RESPONSE, None),
        ("twelve", "", None),
    ],
)
def test_a_part_is_found_where_most_of_its_words_stand(part: str, response: str, place: str | None) -> None:
    found = locate(part, response)
    assert (found and response[slice(*found)]) == place


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


TWO_PARTS = 'It flows through "twelve" countries and ends in Rome.'


def answer(label: str | None, spans: tuple[Span, ...] | None = None, target: str | None = None) -> Example:
    return example(id="1", response=TWO_PARTS, label=label, spans=spans, target=target)


MARKED = (Span(start=40, end=52, label="conflict"), Span(start=17, end=35, label="conflict"))


@pytest.mark.parametrize("ask", TRAINABLE)
@pytest.mark.parametrize(("place", "label", "spans"), [(0, HALLUCINATED, MARKED), (1, FAITHFUL, ())])
def test_what_is_learnt_is_read_back(ask: str, place: int, label: str, spans: tuple[Span, ...]) -> None:
    text = target_text(answer(label, spans), ask)
    found = ASKINGS[ask].parse(text, TWO_PARTS)
    assert found.label == label and not found.num_unlocated and text.startswith((ASKINGS[ask].choices or ())[place])
    if ask == "spans":
        assert sorted((span.start, span.end) for span in found.spans) == sorted((s.start, s.end) for s in spans)


def test_the_datasets_own_judgement_is_learnt_where_there_is_one() -> None:
    assert target_text(answer(HALLUCINATED, MARKED, "Yes. It is ten."), "judgement") == "Yes. It is ten."
    spans = target_text(answer(HALLUCINATED, MARKED, "Yes."), "spans")
    assert json.loads(spans)["hallucinations"][1] == "ends in Rome"
    for row, ask, problem in ((answer(None), "verdict", "no label"), (answer(FAITHFUL), "spans", "no spans")):
        with pytest.raises(UserError, match=f"'1' has {problem}"):
            target_text(row, ask)
