"""Any text of any length is read to its end, and the places of its spans are right."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from critic import Tagger
from critic.requests import Request
from tests.critic.tagger.answers import ANSWER, CONTEXT, QUESTION, assert_same, check
from tests.data_modules.examples import example


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


def test_a_context_of_5000_words_is_read_to_its_end(tagger: Tagger) -> None:
    context = "the river is long and the city is old " * 556 + "the king plays music"
    check(tagger.predict(knowledge=context, response=ANSWER[0]), ANSWER[0])
    columns = tagger.encoder.encode_texts([""], [context], [ANSWER[0]])
    windows = tagger.encoder.windows(columns)
    assert windows.lengths.max() <= 96 and len(windows.row) > 50
    assert (windows.context_start + windows.context_size).max() == columns["context"].lengths[0]


@pytest.mark.slow
def test_an_answer_of_50_000_words(tagger: Tagger) -> None:
    answer = "the river is long and the city is old, say you. " * 5000 + "music"
    tagged = tagger.predict(knowledge="the river is long", history="is it", response=answer)
    check(tagged, answer)
    assert tagged.spans and tagged.spans[-1].end > len(answer) * 0.9 and tagged.spans[0].start < len(answer) * 0.1


def test_padded_batches_say_the_same_as_packed_ones(tagger: Tagger, tagger_folder: Path) -> None:
    from transformers import AutoModelForTokenClassification

    plain = AutoModelForTokenClassification.from_pretrained(tagger_folder).eval()
    padded = Tagger(plain, replace(tagger.encoder, packed=False), tagger.calibration)
    for one, other in zip(*(t.predict(CONTEXT, ANSWER, QUESTION) for t in (tagger, padded)), strict=True):
        assert_same(one, other, atol=1e-5)


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
