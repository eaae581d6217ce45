"""Tagging from Python: what is loaded, the same results in any batch, and texts of any form read to their end."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from critic import Critic, Tagger
from critic.runtime import Request
from critic.tagger.span_calibration import SpanCalibration
from faithkit.calibration import sigmoid
from faithkit.errors import UserError
from faithkit.records import SPAN_TYPES, UNTYPED, Prediction, Turn
from faithkit_workflows.detectors.loading import kind_of, load_detector
from tests.critic.tagger.conftest import Write
from tests.data_modules.examples import example
from tests.model_folders import make_foreign

CONTEXT = ["the river is long", "the city is old and the king lives in it " * 12, "music", "a dog and a cat " * 8]
QUESTION = ["who plays music", "", "who lives in the city " * 20, "what is it"]
ANSWER = [
    "it is long and the king plays music",
    "the king plays music. " * 12,
    "i love it  very much,\r\nthink of the green tree",
    "dog",
]
ROWS = [Request(*row) for row in zip(CONTEXT, QUESTION, ANSWER, strict=True)]


def assert_same(first: Prediction, second: Prediction, atol: float = 1e-6) -> None:
    assert first.score == pytest.approx(second.score, abs=atol) and first.label == second.label
    assert [replace(span, score=0) for span in first.spans] == [replace(span, score=0) for span in second.spans]
    np.testing.assert_allclose([s.score for s in first.spans], [s.score for s in second.spans], atol=atol)


def check(tagged: Prediction, answer: str) -> None:
    assert tagged.label in ("faithful", "hallucinated") and 0 <= tagged.score <= 1
    end = 0
    for span in tagged.spans:
        assert end <= span.start < span.end <= len(answer), "in order, and none over another"
        assert span.text == answer[span.start : span.end] == span.text.strip()
        assert span.label in SPAN_TYPES and 0 <= span.score <= 1
        end = span.end


def test_results_are_the_same_in_any_batch_and_order(tagger: Tagger) -> None:
    rows = [Request(*row) for row in zip(CONTEXT * 3, QUESTION * 3, ANSWER[::-1] * 3, strict=True)]
    together = tagger.tag(rows)
    small, large = (Tagger(tagger.model, tagger.encoder, tagger.calibration, batch_tokens=n) for n in (64, 100_000))
    others = ([tagger.tag([row])[0] for row in rows], tagger.tag(rows[::-1])[::-1], small.tag(rows), large.tag(rows))
    for other in others:
        for first, second in zip(together, other, strict=True):
            assert_same(first, second)


def test_the_switch_pads_and_runs_transformers(tagger: Tagger, tagger_folder: Path, monkeypatch: Any) -> None:
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


def test_thresholds_of_one_call_decide_the_label_and_the_spans(tagger: Tagger) -> None:
    low, high = (tagger.predict(CONTEXT, ANSWER, threshold=t) for t in (0.0, 1.0))
    assert {t.label for t in low} == {"hallucinated"} and all(t.spans for t in low)
    assert {t.label for t in high} == {"faithful"} and not any(t.spans for t in high)
    everything = tagger.predict(CONTEXT, ANSWER, threshold=1.0, span_threshold=0.0)
    assert all(t.label == "faithful" and t.spans for t in everything), "spans with a threshold of their own"
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


def test_a_token_is_as_hallucinated_as_its_best_window_leaves_it(tagger: Tagger, tagger_folder: Path) -> None:
    from transformers import AutoModelForTokenClassification

    model = AutoModelForTokenClassification.from_pretrained(tagger_folder).eval()
    encoder = replace(tagger.encoder, packed=False)
    columns = encoder.encode_texts([QUESTION[3]], [CONTEXT[1] * 3], [ANSWER[0]])
    windows = encoder.windows(columns)
    assert len(windows.row) > 4
    least = np.full(9, np.inf)
    for number in range(len(windows.row)):
        batch = encoder.collate_windows(columns, windows.take(np.array([number])))
        ((_, _, begin, end),) = batch["bounds"].tolist()
        inputs = {n: torch.from_numpy(batch[n]) for n in ("input_ids", "attention_mask", "token_type_ids")}
        with torch.inference_mode():
            logits = model(**inputs).logits[0, begin:end].double()
        odds = (logits[:, 1:].logsumexp(1) - logits[:, 0]).numpy()
        least[batch["token"]] = np.minimum(least[batch["token"]], odds[: len(batch["token"])])
    odds = tagger.answers([Request(CONTEXT[1] * 3, QUESTION[3], ANSWER[0])]).odds
    np.testing.assert_allclose(odds, least[: len(odds)], atol=1e-5)
    assert np.isfinite(odds).all()


@pytest.mark.slow
def test_an_answer_of_50_000_words(tagger: Tagger) -> None:
    answer = "the river is long and the city is old, say you. " * 5000 + "music"
    tagged = tagger.predict(knowledge="the river is long", history="is it", response=answer)
    check(tagged, answer)
    assert tagged.spans and tagged.spans[-1].end > len(answer) * 0.9 and tagged.spans[0].start < len(answer) * 0.1


TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=60).filter(lambda text: bool(text.strip()))


@given(context=TEXT, question=TEXT, answer=TEXT)
def test_any_text_is_tagged_within_its_bounds(tagger: Tagger, context: str, question: str, answer: str) -> None:
    check(tagger.predict(knowledge=context, history=question, response=answer), answer)


@pytest.mark.parametrize("answer", ["\0", "\u200b", "\ufeff\u200d"])
def test_an_answer_that_the_tokenizer_drops_has_no_span_and_is_faithful(tagger: Tagger, answer: str) -> None:
    tagged = tagger.predict(knowledge=CONTEXT[0], response=answer)
    assert tagged.spans == () and tagged.label == "faithful"
    both = tagger.predict(knowledge=CONTEXT[:2], response=[answer, ANSWER[1]])
    assert_same(both[0], tagged)


@pytest.mark.parametrize(
    "context", ["x" * 300_000, "\n" * 100_000 + "music" + "\n" * 100_000, "!?" * 50_000, "a dog and a cat. " * 20_000]
)
def test_long_contexts_of_any_form_are_read_beside_short_ones(tagger_folder: Path, context: str) -> None:
    tagger = Tagger.load(str(tagger_folder), max_windows=1)
    both = tagger.predict(knowledge=[CONTEXT[0], context, CONTEXT[2]], response=["it is long", ANSWER[1], "music"])
    check(both[1], ANSWER[1])
    assert_same(both[0], tagger.predict(knowledge=CONTEXT[0], response="it is long"))
    assert_same(both[1], tagger.predict(knowledge=context, response=ANSWER[1]))


@pytest.mark.parametrize("inside", ["\0", "\ud800", "\udfff\ud83d"])
def test_strange_characters_keep_the_places_of_the_others(tagger: Tagger, inside: str) -> None:
    """A lone surrogate is read as a question mark, a NUL as the tokenizer has it; offsets are those of the answer."""
    answer = f"the king {inside} plays music, it is {inside}long"
    tagger = Tagger(tagger.model, tagger.encoder, replace(tagger.calibration, char_threshold=0.0, merge_gap=0))
    tagged = tagger.predict(CONTEXT[0], answer, threshold=0.0)  # called hallucinated, so it has spans
    assert [(span.start, span.end, span.text) for span in tagged.spans] == [(0, len(answer), answer)]
    if inside != "\0":
        plain = answer.encode(errors="replace").decode()
        as_read = replace(tagged, spans=[replace(tagged.spans[0], text=plain)])
        assert_same(tagger.predict(CONTEXT[0], plain, threshold=0.0), as_read)


def test_surrogates_survive_a_predictions_file(tagger: Tagger, tmp_path: Path) -> None:
    from faithkit.files.jsonl import read_predictions, write_jsonl

    (prediction,) = tagger.predict_examples([example(response="the king \ud800 plays music")])
    write_jsonl(tmp_path / "p.jsonl", [prediction.to_dict()])
    assert read_predictions(tmp_path / "p.jsonl") == {prediction.id: prediction}


def test_each_kind_refuses_the_others_folder(tagger_folder: Path, trained: Path, tmp_path: Path) -> None:
    assert (kind_of(str(tagger_folder)).name, kind_of(str(trained)).name) == ("tagger", "critic")
    with pytest.raises(UserError, match=r"is a 'critic', and a 'tagger' is needed(.|\n)*run of a tagger"):
        Tagger.load(str(trained))
    with pytest.raises(UserError, match=r"is a 'tagger', and a 'critic' is needed"):
        Critic.load(str(tagger_folder))
    loaded = load_detector(str(tagger_folder), precision="32-true", batch_tokens=None)
    assert isinstance(loaded, Tagger)
    assert isinstance(load_detector(str(trained), precision="32-true", batch_tokens=None), Critic)


@pytest.mark.parametrize("typed", [True, False])
def test_weights_of_another_making_are_read_by_their_labels(write_tagger: Write, typed: bool) -> None:
    folder = write_tagger(typed=typed, sidecar=False)
    assert kind_of(str(folder)).name == "tagger"
    tagger = Tagger.load(str(folder))
    assert tagger.calibration == SpanCalibration() and tagger.encoder.max_length == 126
    tagged = tagger.predict(CONTEXT[0], ANSWER[0])
    assert all(span.label in ((*SPAN_TYPES,) if typed else (UNTYPED,)) for span in tagged.spans)


def test_weights_of_no_tagger_are_refused(tiny_bert: Path, trained: Path, write_tagger: Write, tmp_path: Path) -> None:
    critic = make_foreign(Path(shutil.copytree(trained / "hf", tmp_path / "critic")))
    for folder, problem in (
        (tiny_bert, "a token classifier is needed"),
        (critic, "a token classifier is needed"),
        (write_tagger(sidecar=False, labels=("O", "B-PER", "I-PER")), "its labels are O, B-PER, I-PER"),
        (tmp_path / "nowhere" / "at" / "all", "no such run or folder"),
    ):
        with pytest.raises(UserError, match=problem):
            Tagger.load(str(folder))


def test_a_context_of_5000_words_is_read_to_its_end(tagger: Tagger) -> None:
    context = "the river is long and the city is old " * 556 + "the king plays music"
    check(tagger.predict(knowledge=context, response=ANSWER[0]), ANSWER[0])
    columns = tagger.encoder.encode_texts([""], [context], [ANSWER[0]])
    windows = tagger.encoder.windows(columns)
    assert windows.lengths.max() <= 96 and len(windows.row) > 50
    assert (windows.context_start + windows.context_size).max() == columns["context"].lengths[0]


def test_padded_batches_say_the_same_as_packed_ones(tagger: Tagger, tagger_folder: Path) -> None:
    from transformers import AutoModelForTokenClassification

    plain = AutoModelForTokenClassification.from_pretrained(tagger_folder).eval()
    padded = Tagger(plain, replace(tagger.encoder, packed=False), tagger.calibration)
    for one, other in zip(*(t.predict(CONTEXT, ANSWER, QUESTION) for t in (tagger, padded)), strict=True):
        assert_same(one, other, atol=1e-5)
