"""The replies that a judge learns, and what it can read back from them."""

import json

import pytest

from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Span
from judge.asking import ASKINGS, target_text
from judge.settings import TRAINABLE
from tests.data_modules import examples

RESPONSE = 'It flows through "twelve" countries and ends in Rome.'


def example(label: str | None, spans: tuple[Span, ...] | None = None, target: str | None = None) -> Example:
    return examples.example(id="1", response=RESPONSE, label=label, spans=spans, target=target)


MARKED = (Span(start=40, end=52, label="conflict"), Span(start=17, end=35, label="conflict"))


@pytest.mark.parametrize("ask", TRAINABLE)
@pytest.mark.parametrize(("label", "spans"), [(HALLUCINATED, MARKED), (FAITHFUL, ())])
def test_what_is_learnt_is_read_back_as_its_label_and_spans(ask: str, label: str, spans: tuple[Span, ...]) -> None:
    found = ASKINGS[ask].parse(target_text(example(label, spans), ask), RESPONSE)
    assert found.label == label and not found.num_unlocated
    if ask == "spans":
        assert sorted((span.start, span.end) for span in found.spans) == sorted((s.start, s.end) for s in spans)


@pytest.mark.parametrize("ask", TRAINABLE)
def test_a_reply_begins_as_its_choice_does(ask: str) -> None:
    choices = ASKINGS[ask].choices
    assert choices is not None
    for choice, label, spans in zip(choices, (HALLUCINATED, FAITHFUL), (MARKED, ()), strict=True):
        assert target_text(example(label, spans), ask).startswith(choice)


def test_the_datasets_own_judgement_is_learnt_where_there_is_one() -> None:
    assert target_text(example(HALLUCINATED, MARKED, "Yes. It is ten."), "judgement") == "Yes. It is ten."
    assert (
        json.loads(target_text(example(HALLUCINATED, MARKED, "Yes."), "spans"))["hallucinations"][1] == "ends in Rome"
    )


def test_examples_without_what_is_to_be_learnt_are_named() -> None:
    with pytest.raises(UserError, match="'1' has no label"):
        target_text(example(None), "verdict")
    with pytest.raises(UserError, match="'1' has no spans"):
        target_text(example(FAITHFUL), "spans")
