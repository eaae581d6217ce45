"""Tagging from Python: three lines, one answer or many, the same in any batch."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from critic import Tagger
from critic.logistic import sigmoid
from critic.requests import Request
from faithkit.errors import UserError
from faithkit.records import Turn
from tests.critic.tagger.answers import ANSWER, CONTEXT, QUESTION, assert_same, check
from tests.data_modules.examples import example

Write = Callable[..., Path]


def test_results_are_the_same_in_any_batch_and_order(tagger: Tagger) -> None:
    rows = [Request(*row) for row in zip(CONTEXT * 3, QUESTION * 3, ANSWER[::-1] * 3, strict=True)]
    together = tagger.tag(rows)
    small, large = (Tagger(tagger.model, tagger.encoder, tagger.calibration, batch_tokens=n) for n in (64, 100_000))
    for other in (
        [tagger.tag([row])[0] for row in rows],
        tagger.tag(rows[::-1])[::-1],
        small.tag(rows),
        large.tag(rows),
    ):
        for first, second in zip(together, other, strict=True):
            assert_same(first, second)


@pytest.mark.parametrize(
    ("knowledge", "history", "response", "words"),
    [
        ("", None, "text", "knowledge must be text that is not empty"),
        ("text", None, " \n\t\u3000", "response must be text that is not empty"),
        (["a", "b"], None, ["a"], "2 knowledge and 1 response"),
        (["a"], ["q", "q"], ["a"], "1 knowledge, 1 response and 2 history"),
        ("a", None, ["a"], "knowledge must be a list, since response is one"),
        ("a", 5, "a", "history must be text or turns"),
        ("a", [5], "a", "turns that are texts or"),
        (["a", None], None, ["a", "b"], "item 1"),
        ("a", None, None, "response must be a text or a list of texts, got None"),
    ],
)
def test_what_cannot_be_tagged_is_explained(
    tagger: Tagger, knowledge: Any, history: Any, response: Any, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        tagger.predict(knowledge, response, history)


def test_examples_become_predictions_in_their_order(tagger: Tagger) -> None:
    examples = [
        example(
            knowledge=context, response=answer, history=(Turn(speaker="seeker", text=question),) if question else ()
        )
        for context, question, answer in zip(CONTEXT, QUESTION, ANSWER, strict=True)
    ]
    predictions = list(tagger.predict_examples(examples))
    assert [p.id for p in predictions] == [e.id for e in examples]
    for prediction, tagged in zip(predictions, tagger.predict(CONTEXT, ANSWER, QUESTION), strict=True):
        assert prediction.score == pytest.approx(tagged.score, abs=1e-6) and prediction.label == tagged.label
        assert [(s.start, s.end, s.label) for s in prediction.spans] == [
            (s.start, s.end, s.label) for s in tagged.spans
        ]


def test_a_history_may_have_any_form(tagger: Tagger) -> None:
    wanted = tagger.predict(CONTEXT[1], ANSWER[0], QUESTION[0])
    for history in ([QUESTION[0]], [("user", QUESTION[0])], [Turn(speaker="user", text=QUESTION[0])]):
        assert tagger.predict(CONTEXT[1], ANSWER[0], history) == wanted
    turns = [{"speaker": "user", "text": "is it long"}, {"role": "assistant", "content": "yes"}]
    assert tagger.predict(CONTEXT[1], ANSWER[0], turns) == tagger.predict(CONTEXT[1], ANSWER[0], "is it long\nyes")


def test_passages_are_numbered_as_ragtruth_numbers_them(tagger: Tagger) -> None:
    joined = tagger.predict(knowledge="passage 1:the river\n\npassage 2:the king\n\n", response=ANSWER[0])
    assert tagger.predict(knowledge=["the river", "the king"], response=ANSWER[0]) == joined
    assert tagger.predict(["the river"], ANSWER[0]) == tagger.predict("the river", ANSWER[0])


def test_a_threshold_of_one_call_decides_the_label_and_the_spans_agree_with_it(tagger: Tagger) -> None:
    low, high = (tagger.predict(CONTEXT, ANSWER, threshold=t) for t in (0.0, 1.0))
    assert {t.label for t in low} == {"hallucinated"} and all(t.spans for t in low)
    assert {t.label for t in high} == {"faithful"} and not any(t.spans for t in high)


def test_spans_with_a_threshold_of_their_own_do_not_ask_for_the_label(tagger: Tagger) -> None:
    everything = tagger.predict(CONTEXT, ANSWER, threshold=1.0, span_threshold=0.0)
    assert all(t.label == "faithful" and t.spans for t in everything)
    nothing = tagger.predict(CONTEXT, ANSWER, threshold=0.0, span_threshold=1.0)
    assert all(t.label == "hallucinated" and not t.spans for t in nothing)
    assert list(tagger.stream(CONTEXT, ANSWER, threshold=1.0, span_threshold=0.0, progress=False)) == everything
    with pytest.raises(UserError, match="span_threshold"):
        tagger.predict(CONTEXT[0], ANSWER[0], span_threshold=2)


def test_a_stream_gives_what_one_call_gives(tagger: Tagger) -> None:
    streamed = tagger.stream(iter(CONTEXT), iter(ANSWER), iter(QUESTION), progress=False)
    assert list(streamed) == tagger.predict(CONTEXT, ANSWER, QUESTION)


def test_a_tagger_shows_what_it_is_and_its_results_are_json(tagger: Tagger, tagger_folder: Path) -> None:
    assert repr(tagger) == f"Tagger({str(tagger_folder)!r}, threshold=0.7, device='cpu')"
    tagged = tagger.predict(CONTEXT[1], ANSWER[1])
    stored = json.loads(json.dumps(tagged.to_dict()))
    assert tagged.spans and stored["spans"][0]["text"] == tagged.spans[0].text and stored["score"] == tagged.probability


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_lower_precisions_stay_close(precision: str, tagger: Tagger, tagger_folder: Path) -> None:
    if precision == "int8" and "onednn" not in torch.backends.quantized.supported_engines:
        pytest.skip("no int8 kernels for this CPU")
    quick = Tagger.load(str(tagger_folder), device="cpu", precision=precision)
    rows = [Request(*row) for row in zip(CONTEXT, QUESTION, ANSWER, strict=True)]
    one, other = (sigmoid(t.odds(rows)[0]) for t in (tagger, quick))
    assert np.abs(one - other).mean() < 0.03
    for tagged, answer in zip(quick.tag(rows), ANSWER, strict=True):
        check(tagged, answer)


def test_a_dialogue_is_tagged_turn_by_turn(tagger: Tagger) -> None:
    turns = [("user", QUESTION[0]), ("Assistant", ANSWER[0]), ("user", "and who else"), ("assistant", ANSWER[3])]
    tagged = tagger.predict_dialogue(CONTEXT[1], turns)
    assert [place for place, one in enumerate(tagged) if one is not None] == [1, 3]
    assert tagged[1] is not None and tagged[3] is not None
    assert_same(tagged[1], tagger.predict(knowledge=CONTEXT[1], history=QUESTION[0], response=ANSWER[0]))
    before = "\n".join([QUESTION[0], ANSWER[0], "and who else"])
    assert_same(tagged[3], tagger.predict(knowledge=CONTEXT[1], history=before, response=ANSWER[3]))


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ([], "turns has no turn of the assistant"),
        ([("user", "hello"), ("me", "hi")], "speakers: me, user"),
        ([("assistant", " ")], "turns must be text"),
    ],
)
def test_a_dialogue_that_cannot_be_tagged_is_explained(
    tagger: Tagger, turns: list[tuple[str, str]], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        tagger.predict_dialogue("a context", turns)
