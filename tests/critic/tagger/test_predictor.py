"""Tagging from Python: three lines, one answer or many, the same in any batch, texts of any length and kind."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from critic import Tagger
from critic.calibration_texts import calibration_requests
from critic.tagger.read_windows import keep_best
from critic.tagger.requests import Request, Tagged
from faithkit.errors import UserError
from faithkit.records import Turn
from faithkit.span_types import TYPES, UNTYPED
from tests.data_modules.examples import example

Write = Callable[..., Path]
CONTEXT = ["the river is long", "the city is old and the king lives in it " * 12, "music", "a dog and a cat " * 8]
QUESTION = ["who plays music", "", "who lives in the city " * 20, "what is it"]
ANSWER = [
    "it is long and the king plays music",
    "the king plays music. " * 12,
    "i love it  very much,\r\nthink of the green tree",
    "dog",
]
TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=60).filter(lambda text: bool(text.strip()))


@pytest.fixture(scope="module")
def tagger(tagger_folder: Path) -> Tagger:
    return Tagger.load(str(tagger_folder))


def assert_same(first: Tagged, second: Tagged, atol: float = 1e-6) -> None:
    assert first.score == pytest.approx(second.score, abs=atol) and first.label == second.label
    assert [replace(span, score=0) for span in first.spans] == [replace(span, score=0) for span in second.spans]
    np.testing.assert_allclose([s.score for s in first.spans], [s.score for s in second.spans], atol=atol)


def check(tagged: Tagged, answer: str) -> None:
    assert tagged.label in ("faithful", "hallucinated") and 0 <= tagged.score <= 1
    end = 0
    for span in tagged.spans:
        assert end <= span.start < span.end <= len(answer), "in order, and none over another"
        assert span.text == answer[span.start : span.end] == span.text.strip()
        assert span.label in TYPES and 0 <= span.score <= 1
        end = span.end


def test_one_answer_gives_one_result_and_lists_give_lists(tagger: Tagger) -> None:
    one = tagger.predict(context=CONTEXT[0], question=QUESTION[0], answer=ANSWER[0])
    many = tagger.predict(context=CONTEXT, question=QUESTION, answer=ANSWER)
    assert isinstance(one, Tagged) and isinstance(many, list) and len(many) == 4
    assert_same(one, many[0])
    for tagged, answer in zip(many, ANSWER, strict=True):
        check(tagged, answer)
    assert sum(len(tagged.spans) for tagged in many) >= 5, "else this file tests little"
    assert len({span.label for tagged in many for span in tagged.spans}) > 1
    assert tagger.predict(context=[], answer=[]) == []


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


def test_padded_batches_say_the_same_as_packed_ones(tagger: Tagger, tagger_folder: Path) -> None:
    from transformers import AutoModelForTokenClassification

    plain = AutoModelForTokenClassification.from_pretrained(tagger_folder).eval()
    padded = Tagger(plain, replace(tagger.encoder, packed=False), tagger.calibration)
    for one, other in zip(*(t.predict(CONTEXT, ANSWER, QUESTION) for t in (tagger, padded)), strict=True):
        assert_same(one, other, atol=1e-5)


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
    odds, _, _ = tagger.odds([Request(CONTEXT[1] * 3, QUESTION[3], ANSWER[0])])
    np.testing.assert_allclose(odds, least[: len(odds)], atol=1e-5)
    assert np.isfinite(odds).all()


def test_a_context_of_5000_words_is_read_to_its_end(tagger: Tagger) -> None:
    context = "the river is long and the city is old " * 556 + "the king plays music"
    check(tagger.predict(context=context, answer=ANSWER[0]), ANSWER[0])
    columns = tagger.encoder.encode_texts([""], [context], [ANSWER[0]])
    windows = tagger.encoder.windows(columns)
    assert windows.lengths.max() <= 96 and len(windows.row) > 50
    assert (windows.context_start + windows.context_size).max() == columns["context"].lengths[0]


def test_an_answer_of_50_000_words(tagger: Tagger) -> None:
    answer = "the river is long and the city is old, say you. " * 5000 + "music"
    tagged = tagger.predict(context="the river is long", question="is it", answer=answer)
    check(tagged, answer)
    assert tagged.spans and tagged.spans[-1].end > len(answer) * 0.9 and tagged.spans[0].start < len(answer) * 0.1


def test_repeated_words_are_marked_each_where_it_stands(tagger: Tagger) -> None:
    answer = "king king king river king river river king king"
    odds, start, end = tagger.odds([Request(CONTEXT[0], "", answer)])
    assert [answer[a:b] for a, b in zip(start.values, end.values, strict=True)] == answer.split()
    tagged = tagger.predict(context=CONTEXT[0], answer=answer)
    hot = tagger.calibration.probabilities(odds) >= tagger.calibration.char_threshold
    places = {i for span in tagged.spans for i in range(span.start, span.end)}
    assert {i for a, b, own in zip(start.values, end.values, hot, strict=True) if own for i in range(a, b)} <= places


@given(context=TEXT, question=TEXT, answer=TEXT)
@settings(max_examples=40, deadline=None)
def test_any_text_is_tagged_within_its_bounds(tagger: Tagger, context: str, question: str, answer: str) -> None:
    check(tagger.predict(context=context, question=question, answer=answer), answer)


@pytest.mark.parametrize("answer", ["\0", "\u200b", "\ufeff\u200d"])
def test_an_answer_that_the_tokenizer_drops_has_no_span_and_is_faithful(tagger: Tagger, answer: str) -> None:
    tagged = tagger.predict(context=CONTEXT[0], answer=answer)
    assert tagged.spans == [] and tagged.label == "faithful"
    both = tagger.predict(context=CONTEXT[:2], answer=[answer, ANSWER[1]])
    assert_same(both[0], tagged)


@pytest.mark.parametrize("inside", ["\0", "\ud800", "\udfff\ud83d"])
def test_strange_characters_keep_the_places_of_the_others(tagger: Tagger, inside: str) -> None:
    """A lone surrogate is read as a question mark, a NUL as the tokenizer has it; offsets are those of the answer."""
    answer = f"the king {inside} plays music, it is {inside}long"
    tagger = Tagger(tagger.model, tagger.encoder, replace(tagger.calibration, char_threshold=0.0, merge_gap=0))
    tagged = tagger.predict(context=CONTEXT[0], answer=answer)
    assert [(span.start, span.end, span.text) for span in tagged.spans] == [(0, len(answer), answer)]
    if inside != "\0":
        plain = answer.encode(errors="replace").decode()
        assert_same(
            tagger.predict(context=CONTEXT[0], answer=plain),
            replace(tagged, spans=[replace(tagged.spans[0], text=plain)]),
        )


def test_surrogates_survive_a_predictions_file(tagger: Tagger, tmp_path: Path) -> None:
    from faithkit.files.jsonl import read_predictions, write_jsonl

    (prediction,) = tagger.predict_examples([example(response="the king \ud800 plays music")])
    write_jsonl(tmp_path / "p.jsonl", [prediction.to_dict()])
    assert read_predictions(tmp_path / "p.jsonl") == {prediction.id: prediction}


@pytest.mark.parametrize(
    ("context", "question", "answer", "words"),
    [
        ("", None, "text", "context must be text that is not empty"),
        ("text", None, "", "answer must be text that is not empty"),
        ("text", None, " \n\t\u3000", "answer must be text that is not empty"),
        (["a", "b"], None, ["a"], "2 context and 1 answer"),
        (["a"], ["q", "q"], ["a"], "1 context, 1 answer and 2 question"),
        ("a", None, ["a"], "all be texts, or all be lists"),
        ("a", 5, "a", "question must be text or turns"),
        ("a", [5], "a", "turns that are texts or"),
        (["a", None], None, ["a", "b"], "item 1"),
        (["a"], [5], ["a"], "question must be text"),
        (["a", "b"], None, ["a", " "], "item 1"),
        ("a", None, None, "all be texts, or all be lists"),
        (None, None, None, "all be texts, or all be lists"),
        (5, None, 5, "all be texts, or all be lists"),
    ],
)
def test_what_cannot_be_tagged_is_explained(
    tagger: Tagger, context: Any, question: Any, answer: Any, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        tagger.predict(context=context, question=question, answer=answer)


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


def test_todays_words_and_those_of_before_mean_the_same(tagger: Tagger) -> None:
    before = tagger.predict(context=CONTEXT[1], question=QUESTION[0], answer=ANSWER[0])
    for history in (QUESTION[0], [QUESTION[0]], [("user", QUESTION[0])], [Turn(speaker="user", text=QUESTION[0])]):
        assert tagger.predict(knowledge=CONTEXT[1], response=ANSWER[0], history=history) == before
    turns = [{"speaker": "user", "text": "is it long"}, {"role": "assistant", "content": "yes"}]
    joined = tagger.predict(CONTEXT[1], ANSWER[0], question="is it long\nyes")
    assert tagger.predict(CONTEXT[1], ANSWER[0], turns) == joined
    with pytest.raises(UserError, match="two values for one argument"):
        tagger.predict(knowledge="a", context="a", response="a")


def test_passages_are_numbered_as_ragtruth_numbers_them(tagger: Tagger) -> None:
    joined = tagger.predict(knowledge="passage 1:the river\n\npassage 2:the king\n\n", response=ANSWER[0])
    assert tagger.predict(knowledge=["the river", "the king"], response=ANSWER[0]) == joined
    assert tagger.predict(["the river"], ANSWER[0]) == tagger.predict("the river", ANSWER[0])


def test_a_threshold_of_one_call_decides_the_label_and_keeps_the_spans(tagger: Tagger) -> None:
    stored = tagger.predict(CONTEXT, ANSWER)
    low, high = (tagger.predict(CONTEXT, ANSWER, threshold=t) for t in (0.0, 1.0))
    assert {t.label for t in low} == {"hallucinated"} and {t.label for t in high} == {"faithful"}
    assert [t.spans for t in low] == [t.spans for t in stored] == [t.spans for t in high]


def test_a_stream_gives_what_one_call_gives(tagger: Tagger) -> None:
    streamed = tagger.stream(iter(CONTEXT), iter(ANSWER), iter(QUESTION), progress=False)
    assert list(streamed) == tagger.predict(CONTEXT, ANSWER, QUESTION)


def test_a_tagger_shows_what_it_is_and_its_results_are_json(tagger: Tagger, tagger_folder: Path) -> None:
    assert repr(tagger) == f"Tagger({str(tagger_folder)!r}, threshold=0.7, device='cpu')"
    tagged = tagger.predict(CONTEXT[1], ANSWER[1])
    stored = json.loads(json.dumps(tagged.to_dict()))
    assert tagged.spans and stored["spans"][0]["text"] == tagged.spans[0].text and stored["score"] == tagged.probability


def test_cached_columns_are_tagged_as_their_texts_are(tagger: Tagger) -> None:
    examples = [example(knowledge=c, response=a) for c, a in zip(CONTEXT, ANSWER, strict=True)]
    columns = replace(tagger.encoder, max_windows=1).encode(examples, Counter())
    assert list(tagger.predict_columns(examples, columns)) == list(tagger.predict_examples(examples))
    cached, texts = tagger.answers(examples, [columns]), tagger.answers(examples)
    assert np.array_equal(cached.odds, texts.odds) and np.array_equal(cached.words.share, texts.words.share)


def test_the_best_window_of_each_token_is_kept_over_all_batches() -> None:
    rng = np.random.default_rng(0)
    batches = [(rng.integers(0, 30, 50), rng.normal(size=50).round(1)) for _ in range(6)]
    best, least = np.full((30, 2), np.nan, np.float32), np.full(30, np.inf)
    for token, odds in batches:
        keep_best(best, least, token, odds, np.stack([0 * odds, odds], 1).astype(np.float32))
    for one in range(30):
        assert least[one] == min(odds[token == one].min(initial=np.inf) for token, odds in batches)
    assert np.array_equal(best[:, 1], least.astype(np.float32))


def test_of_windows_with_equal_odds_the_last_of_a_batch_and_the_first_batch_win() -> None:
    best, lowest = np.full((3, 2), np.nan, np.float32), np.full(3, np.inf)
    token = np.array([2, 0, 0, 2, 0, 1])
    odds = np.array([1.0, 2.0, 0.5, 1.0, 0.5, np.nan])
    places = np.arange(6, dtype=np.float32)
    for batch in (0, 1):
        keep_best(best, lowest, token, odds, np.stack([places, np.full(6, batch, np.float32)], 1))
    assert best[[0, 2]].tolist() == [[4, 0], [3, 0]] and lowest[[0, 2]].tolist() == [0.5, 1.0]
    assert np.isnan(best[1]).all() and lowest[1] == np.inf, "odds that are no number choose nothing"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([-1.0, 0.0, 0.5, 2.0])), max_size=30))
def test_the_best_window_is_that_of_a_walk_from_the_highest_odds_to_the_lowest(places: list[tuple[int, float]]) -> None:
    token, odds = np.array([t for t, _ in places], np.int64), np.array([o for _, o in places])
    logits = np.arange(2 * len(places), dtype=np.float32).reshape(-1, 2)
    best, lowest, walked = np.full((5, 2), np.nan, np.float32), np.full(5, np.inf), np.full((5, 2), np.nan, np.float32)
    keep_best(best, lowest, token, odds, logits)
    for place in np.argsort(-odds, kind="stable"):
        walked[token[place]] = logits[place]
    np.testing.assert_array_equal(best, walked)


def test_a_dialogue_is_tagged_turn_by_turn(tagger: Tagger) -> None:
    turns = [("user", QUESTION[0]), ("Assistant", ANSWER[0]), ("user", "and who else"), ("assistant", ANSWER[3])]
    tagged = tagger.predict_dialogue(CONTEXT[1], turns)
    assert [place for place, one in enumerate(tagged) if one is not None] == [1, 3]
    assert tagged[1] is not None and tagged[3] is not None
    assert_same(tagged[1], tagger.predict(context=CONTEXT[1], question=QUESTION[0], answer=ANSWER[0]))
    before = "\n".join([QUESTION[0], ANSWER[0], "and who else"])
    assert_same(tagged[3], tagger.predict(context=CONTEXT[1], question=before, answer=ANSWER[3]))


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ([], "no turn is the assistant's"),
        ([("user", "hello"), ("me", "hi")], "speakers: me, user"),
        ([("assistant", " ")], "response must be text"),
    ],
)
def test_a_dialogue_that_cannot_be_tagged_is_explained(
    tagger: Tagger, turns: list[tuple[str, str]], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        tagger.predict_dialogue("a context", turns)


def test_a_head_without_types_gives_spans_without_a_type(write_tagger: Write) -> None:
    tagger = Tagger.load(str(write_tagger(typed=False)))
    tagger.calibration = replace(
        tagger.calibration, char_threshold=0.01, response_threshold=0.01
    )  # random weights mark little
    tagged = tagger.predict(CONTEXT, ANSWER)
    labels = {span.label for one in tagged for span in one.spans}
    assert labels == {UNTYPED}


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_lower_precisions_stay_close(precision: str, tagger: Tagger, tagger_folder: Path) -> None:
    if precision == "int8" and "onednn" not in torch.backends.quantized.supported_engines:
        pytest.skip("no int8 kernels for this CPU")
    quick = Tagger.load(str(tagger_folder), device="cpu", precision=precision)
    rows = [Request(*row) for row in zip(CONTEXT, QUESTION, ANSWER, strict=True)]
    one, other = (t.calibration.probabilities(t.odds(rows)[0]) for t in (tagger, quick))
    assert np.abs(one - other).mean() < 0.03
    for tagged, answer in zip(quick.tag(rows), ANSWER, strict=True):
        check(tagged, answer)


def test_int8_is_measured_on_requests_of_many_lengths() -> None:
    requests = calibration_requests()
    assert requests == calibration_requests() and len({len(request.knowledge.split()) for request in requests}) > 8
