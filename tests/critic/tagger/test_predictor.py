"""Tagging from Python: three lines, one answer or many, the same in any batch."""

from pathlib import Path

import numpy as np
import pytest
import torch

from critic import Tagger
from critic.logistic import sigmoid
from critic.requests import Request
from faithkit.records import Turn
from tests.critic.tagger.answers import ANSWER, CONTEXT, QUESTION, assert_same, check
from tests.data_modules.examples import example

ROWS = [Request(*row) for row in zip(CONTEXT, QUESTION, ANSWER, strict=True)]


def test_results_are_the_same_in_any_batch_and_order(tagger: Tagger) -> None:
    rows = [Request(*row) for row in zip(CONTEXT * 3, QUESTION * 3, ANSWER[::-1] * 3, strict=True)]
    together = tagger.tag(rows)
    small, large = (Tagger(tagger.model, tagger.encoder, tagger.calibration, batch_tokens=n) for n in (64, 100_000))
    others = ([tagger.tag([row])[0] for row in rows], tagger.tag(rows[::-1])[::-1], small.tag(rows), large.tag(rows))
    for other in others:
        for first, second in zip(together, other, strict=True):
            assert_same(first, second)


def test_the_switch_tags_padded_windows_with_transformers(
    tagger: Tagger, tagger_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAITHKIT_FAST", "0")
    plain = Tagger.load(str(tagger_folder))
    assert not plain.encoder.packed and tagger.encoder.packed
    assert not any(type(module).__module__.startswith("faithkit") for module in plain.model.modules())
    for first, second in zip(tagger.tag(ROWS), plain.tag(ROWS), strict=True):
        assert_same(first, second)


def test_examples_become_predictions_in_their_order(tagger: Tagger) -> None:
    asked = [(Turn(speaker="seeker", text=question),) if question else () for question in QUESTION]
    rows = zip(CONTEXT, asked, ANSWER, strict=True)
    examples = [example(knowledge=context, response=answer, history=history) for context, history, answer in rows]
    predictions = list(tagger.predict_examples(examples))
    assert [p.id for p in predictions] == [e.id for e in examples]
    for prediction, tagged in zip(predictions, tagger.predict(CONTEXT, ANSWER, QUESTION), strict=True):
        assert prediction.score == pytest.approx(tagged.score, abs=1e-6) and prediction.label == tagged.label
        first, second = ([(s.start, s.end, s.label) for s in one.spans] for one in (prediction, tagged))
        assert first == second


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
    streamed = tagger.stream(iter(CONTEXT), iter(ANSWER), threshold=1.0, span_threshold=0.0, progress=False)
    assert list(streamed) == everything


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_lower_precisions_stay_close(precision: str, tagger: Tagger, tagger_folder: Path) -> None:
    if precision == "int8" and "onednn" not in torch.backends.quantized.supported_engines:
        pytest.skip("no int8 kernels for this CPU")
    quick = Tagger.load(str(tagger_folder), device="cpu", precision=precision)
    one, other = (sigmoid(t.answers(ROWS).odds) for t in (tagger, quick))
    assert np.abs(one - other).mean() < 0.03
    for tagged, answer in zip(quick.tag(ROWS), ANSWER, strict=True):
        check(tagged, answer)


def test_a_dialogue_is_tagged_turn_by_turn(tagger: Tagger) -> None:
    turns = [("user", QUESTION[0]), ("Assistant", ANSWER[0]), ("user", "and who else"), ("assistant", ANSWER[3])]
    tagged = tagger.predict_dialogue(CONTEXT[1], turns)
    assert [place for place, one in enumerate(tagged) if one is not None] == [1, 3]
    assert tagged[1] is not None and tagged[3] is not None
    assert_same(tagged[1], tagger.predict(knowledge=CONTEXT[1], history=QUESTION[0], response=ANSWER[0]))
    before = "\n".join([QUESTION[0], ANSWER[0], "and who else"])
    assert_same(tagged[3], tagger.predict(knowledge=CONTEXT[1], history=before, response=ANSWER[3]))
