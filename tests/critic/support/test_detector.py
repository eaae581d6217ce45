"""The detector `default`: label, probability and spans agree; a changed file or other weights are refused."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from critic.support.alignment import FEATURES, Alignment, Encoded
from critic.support.detector import FILE, SupportDetector, load_encoder
from critic.support.normal_forms import read_words
from critic.support.word_model import WordModel, fit, label_words
from critic.support.word_states import ContextCache, choose_contexts
from data_modules.datasets.pairs import read_pairs
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction, join_passages
from tests.running import ROOT

ANSWERS = ROOT / "data_modules/everyday_answers/development.jsonl"
TEXT = st.text(min_size=1).filter(str.strip)
CONTEXT = "The device holds 1.7 litres. The warranty lasts 24 months. Adults take 20 mg and children take 10 mg."


@pytest.fixture(scope="module")
def detector(default_file: Path) -> SupportDetector:
    return SupportDetector.load(str(default_file))


@pytest.fixture(scope="module")
def answers() -> Sequence[Example]:
    return read_pairs(ANSWERS)[:120]


def test_label_probability_and_spans_agree(detector: SupportDetector, answers: Sequence[Example]) -> None:
    predictions = list(detector.predict_examples(answers))
    assert {p.label for p in predictions} == {FAITHFUL, HALLUCINATED}
    for example, prediction in zip(answers, predictions, strict=True):
        assert prediction.score is not None
        is_hallucinated = prediction.score >= detector.model.threshold
        assert prediction.label == (HALLUCINATED if is_hallucinated else FAITHFUL)
        assert bool(prediction.spans) == is_hallucinated
        assert all(example.response[s.start : s.end].strip() for s in prediction.spans)


@pytest.mark.parametrize(
    ("answer", "relation", "element"),
    [
        ("The warranty lasts 36 months.", "contradiction", "number"),
        ("The warranty lasts 24 weeks.", "contradiction", "unit"),
        ("The warranty does not last 24 months.", "contradiction", "negation"),
        ("The warranty starts on 1 May 2024.", "unsupported_addition", "date"),
    ],
)
def test_a_mark_has_the_type_it_compares(detector: SupportDetector, answer: str, relation: str, element: str) -> None:
    found = detector.predict(CONTEXT, answer, threshold=0.0)
    assert isinstance(found, Prediction)
    assert (relation, element) in [(span.relation, span.element) for span in found.spans], found.spans


def test_a_list_gives_what_single_calls_give(detector: SupportDetector, answers: Sequence[Example]) -> None:
    some = answers[:12]
    together = detector.predict([e.knowledge for e in some], [e.response for e in some])
    for example, result in zip(some, together, strict=True):
        alone = detector.predict(example.knowledge, example.response)
        assert alone.score == pytest.approx(result.score, abs=1e-5) and alone.label == result.label


def test_a_kept_context_gives_the_same_and_the_cache_is_bounded(default_file: Path, answers: Sequence[Example]) -> None:
    detector = SupportDetector.load(str(default_file))
    first = list(detector.predict_examples(answers))
    assert list(detector.predict_examples(answers)) == first  # contexts come from the cache
    cache = ContextCache(max_bytes=200_000)
    detector.encoder.cache = cache
    assert [p.label for p in detector.predict_examples(answers)] == [p.label for p in first]
    assert 0 < cache.num_bytes <= cache.max_bytes
    detector.predict("word " * 20_000, "It lasts.")  # larger than the cache: judged, and not kept
    assert cache.num_bytes <= cache.max_bytes


def test_passages_about_something_else_are_left_out(detector: SupportDetector) -> None:
    museum, lions = "The museum opens at ten. Tickets cost 12 euros.", "Lions sleep for twenty hours a day."
    joined = join_passages([lions, museum, lions])
    choose = partial(choose_contexts, detector.encoder.tokenizer)
    assert choose(joined, "When?", "The museum opens at nine.") == [museum]
    both = choose(joined, "", "The museum opens at nine. Lions sleep all day.")
    assert both == choose(joined, "", "Entirely different words.") == [join_passages([lions, museum])]
    assert choose(museum, "", "Lions sleep.") == [museum]
    alone, among = (detector.predict(context, "The museum opens at ten.") for context in ([museum], [lions, museum]))
    assert not isinstance(alone, list) and not isinstance(among, list) and alone.label == among.label
    assert detector.predict([lions, museum, lions], "It opens.") == detector.predict(joined, "It opens.")


def test_of_a_long_context_the_parts_with_the_words_of_the_response_are_encoded(detector: SupportDetector) -> None:
    other, about = "Lions sleep for twenty hours a day. ", "The museum opens at ten. Tickets cost 12 euros. "
    context = other * 400 + about + other * 400
    first, *others = choose_contexts(detector.encoder.tokenizer, context, "", "The museum opens at nine.")
    assert first.startswith("The museum opens at ten.") and len(others) < 3
    assert choose_contexts(detector.encoder.tokenizer, about, "", "It opens.") == [about]
    requests = ["The museum opens at nine.", "Tickets cost 12 euros.", "Lions sleep."]
    together = detector.predict([context, about, context], requests)
    alone = [detector.predict(*pair) for pair in zip([context, about, context], requests, strict=True)]
    assert isinstance(together, list) and [one.label for one in together] == [one.label for one in alone]


@pytest.mark.parametrize(
    "context", ["x" * 300_000, "\n" * 100_000 + CONTEXT, "!?" * 50_000, "\u4e2d\u56fd" * 50_000, "word " * 100_000]
)
def test_contexts_of_any_form_get_a_verdict(detector: SupportDetector, context: str) -> None:
    result = detector.predict(context, "The warranty lasts 24 months.")
    assert not isinstance(result, list) and 0 <= result.probability <= 1


def word_features(context: str, response: str, word: str) -> dict[str, float]:
    """Computes the features of a word with states that are equal for equal normal forms, and orthogonal otherwise."""
    words = [read_words(text) for text in (context, response)]
    norms = sorted({word.norm for text in words for word in text})
    states = [np.eye(len(norms), dtype=np.float32)[[norms.index(w.norm) for w in text]] for text in words]
    encoded, answer = (Encoded(*pair) for pair in zip(words, states, strict=True))
    aligned = Alignment(encoded, Encoded([], np.zeros((0, len(norms)), np.float32)), answer)
    number = next(n for n, place in enumerate(aligned.places) if answer.words[place].lower == word)
    return dict(zip(FEATURES, aligned.features[number], strict=True))


def test_a_value_of_another_place_fits_worse_than_its_rival() -> None:
    wrong, right = (word_features(CONTEXT, f"Children take {dose} mg.", dose) for dose in ("20", "10"))
    assert wrong["value in the context"] and right["value in the context"]
    assert wrong["margin"] > 0 > right["margin"]
    assert word_features(CONTEXT, "Children take 30 mg.", "30")["number of no such quantity"] == 1


def test_negations_and_opposites_are_compared_with_the_matched_sentence() -> None:
    context = "The warranty does not cover limescale. Returns are accepted before delivery. The shop may open late."
    assert word_features(context, "The warranty may cover limescale.", "cover")["negated in the context only"] == 1
    assert word_features(context, "The warranty does not cover limescale.", "cover")["negated on one side"] == 0
    rejected = word_features(context, "Returns are rejected before delivery.", "rejected")
    assert rejected["opposite in the matched sentence"]
    assert not word_features(context, "Returns are accepted before delivery.", "accepted")["opposite in the context"]
    assert word_features(context, "The shop must open late.", "must")["other modal"] == 1


@pytest.mark.parametrize(
    ("knowledge", "response", "marked"),
    [
        ("Call is_off of the switch, with one argument.", "Call is_on of the switch.", "is_on"),
        ("The rent rose to 900\u00b9 May 2021.", "The rent rose to 950\u00b9 May 2021.", "950"),
        ("It opens at \u00b2 am, for 20 people.", "It opens at \u00b2 am, for 30 people.", "30"),
    ],
)
def test_identifiers_of_stop_words_and_superscripts_are_read(
    detector: SupportDetector, knowledge: str, response: str, marked: str
) -> None:
    result = detector.predict(knowledge, response, threshold=0.0)
    assert not isinstance(result, list) and marked in [span.text for span in result.spans]


@settings(deadline=None, max_examples=30)
@given(knowledge=TEXT, question=st.text(), response=TEXT)
def test_every_text_gets_a_verdict(detector: SupportDetector, knowledge: str, question: str, response: str) -> None:
    result = detector.predict(knowledge, response, question)
    assert not isinstance(result, list) and 0 <= result.probability <= 1
    assert all(response[span.start : span.end] == span.text for span in result.spans)


def test_a_changed_file_and_other_weights_than_the_fitted_are_refused(default_file: Path, tmp_path: Path) -> None:
    changed, other = tmp_path / "changed.json", tmp_path / "other.json"
    changed.write_text(json.dumps(json.loads(default_file.read_text()) | {"threshold": 0.1}))
    replace(WordModel.read(default_file), encoder_sha256="0" * 64).write(other)
    for path, problem in ((changed, "was changed"), (other, "fitted with other weights")):
        with pytest.raises(UserError, match=problem):
            SupportDetector.load(str(path))


def test_a_fit_separates_the_rows_that_it_has_seen(tiny_bert: Path, answers: Sequence[Example]) -> None:
    rows = label_words(load_encoder(str(tiny_bert), "cpu"), answers)
    weights = fit(rows)
    odds = np.array([weights.response_logit(weights.word_logits(r.features), r.features) for r in rows])
    labels = np.array([row.label for row in rows])
    assert odds[labels == 1].mean() > odds[labels == 0].mean() + 0.5


def test_the_shipped_file_names_its_data_and_its_figures() -> None:
    shipped = WordModel.read(FILE)
    assert shipped.encoder == "minilm" and len(shipped.encoder_sha256) == 64
    assert all(part["licence"] and part["rows"] for part in shipped.description["fitted_on"])
    assert FILE.stat().st_size < 32_000


def test_what_the_assistant_claimed_before_is_no_part_of_the_question(detector: SupportDetector) -> None:
    context, answer = "The warranty lasts 24 months.", "It lasts 36 months."
    before = [("user", "How long?"), ("assistant", "It lasts 36 months."), ("user", "Are you sure?")]
    for history in (before, [text for _, text in before]):
        assert [span.text for span in detector.predict(context, answer, history).spans] == ["36 months"]
    assert not detector.predict(context, answer, [("user", "Is it 36 months?")]).spans
