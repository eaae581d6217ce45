"""Fitting on validation: thresholds that no other beats, calibrated probabilities, and data that cannot be fitted."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critic.runtime import Request, request_of
from critic.tagger.module import best_f1
from critic.tagger.span_calibration import Answers, SpanCalibration
from critic.tagger.task import fit_calibration, fit_spans, wrong_tokens
from data_modules.encoding.encoder import Ragged
from faithkit.calibration import calibration_error, fit_line, sigmoid
from faithkit.records import UNTYPED, Example, Span
from tests.data_modules.examples import example

WORD = 4  # characters of every token, with a space behind


def answers(odds: list[list[float]], wrong: list[list[int]]) -> tuple[Answers, list[Example]]:
    """Answers of four-letter words, of which some are marked."""
    examples = []
    for row in wrong:
        runs = re.finditer("1+", "".join(map(str, row)))
        spans = tuple(Span(start=5 * run.start(), end=5 * run.end() - 1, label=UNTYPED) for run in runs)
        text = " ".join("word" for _ in row)
        examples.append(example(response=text, spans=spans, label="hallucinated" if spans else "faithful"))
    places = [[(5 * number, 5 * number + WORD) for number in range(len(row))] for row in wrong]
    return made([request_of(one) for one in examples], places, np.concatenate(odds)), examples


def made(requests: list[Request], places: list[list[tuple[int, int]]], odds: Any = None) -> Answers:
    """Answers with tokens at these places."""
    start, end = (Ragged.from_lists([[place[side] for place in row] for row in places]) for side in (0, 1))
    return Answers.of(requests, np.arange(len(start.values)) if odds is None else odds.astype(float), start, end)


def drawn(seed: int = 0, count: int = 60, sharpness: float = 4.0) -> tuple[Answers, list[Example]]:
    """Runs of wrong words that the odds tell apart, but far too surely and with a bias."""
    rng = np.random.default_rng(seed)
    odds: list[Any] = []
    wrong: list[list[int]] = []
    for _ in range(count):
        row = np.zeros(int(rng.integers(5, 30)), int)
        if rng.random() < 0.5:
            at = int(rng.integers(0, len(row)))
            row[at : at + 4] = 1
        odds.append(sharpness * (2 * row - 1.5 + rng.normal(0, 1, len(row))) - 3)
        wrong.append(row.tolist())
    return answers(odds, wrong)


def char_f1(calibration: SpanCalibration, given: Answers, examples: list[Example]) -> float:
    """F1 of characters, counted character by character."""
    probability = calibration.probabilities(given)
    hallucinated = calibration.is_hallucinated(calibration.response_scores(given, probability))
    found = calibration.spans(given, probability, hallucinated)
    called = {
        (int(given.owner[first]), place)
        for start, end, first in zip(found.start, found.end, found.first, strict=True)
        for place in range(start, end)
    }
    gold = {(i, place) for i, e in enumerate(examples) for s in e.spans or () for place in range(s.start, s.end)}
    return 2 * len(called & gold) / (len(called) + len(gold))


def test_thresholds_are_the_best_that_there_are() -> None:
    given, examples = drawn()
    calibration, report = fit_calibration(given, examples, "f1")
    assert report["char_f1"] == pytest.approx(char_f1(calibration, given, examples))
    probability = calibration.probabilities(given)
    for threshold in np.linspace(0.01, 0.99, 13):
        for merge_gap in (0, 12):
            other = replace(calibration, char_threshold=float(threshold), merge_gap=merge_gap)
            assert char_f1(other, given, examples) <= report["char_f1"] + 0.02, (threshold, merge_gap)
    scores = calibration.response_scores(given, probability)
    gold = np.array([bool(e.spans) for e in examples])

    def response_f1(threshold: float) -> float:
        called = scores >= threshold
        return 2 * int((called & gold).sum()) / int(called.sum() + gold.sum())

    assert response_f1(calibration.response_threshold) == pytest.approx(max(map(response_f1, scores)))
    assert report["response_f1"] == pytest.approx(response_f1(calibration.response_threshold))


def test_calibration_brings_probabilities_to_what_they_mean() -> None:
    given, examples = drawn(count=300)
    calibration, report = fit_calibration(given, examples, "f1")
    assert report["token_ece_after"] < 0.03 < report["token_ece_before"]
    held, fresh = drawn(seed=1)
    wrong = wrong_tokens(held, fresh)
    assert calibration_error(calibration.probabilities(held), wrong) < calibration_error(sigmoid(held.odds), wrong)
    assert report["response_ece"] < 0.1 and report["notes"] == []


def test_smoothing_is_taken_where_it_helps() -> None:
    """A span whose every other word is found, and lone words that are right but look wrong."""
    wrong = [[0] * 6 + [1] * 9 + [0] * 6, [0] * 20]
    odds = [[-4.0] * 6 + [3, -4] * 4 + [3] + [-4.0] * 6, [-4.0] * 10 + [3] + [-4.0] * 9]
    given, examples = answers(odds, wrong)
    calibration, f1 = fit_spans(SpanCalibration(), given, sigmoid(given.odds), examples)
    assert f1 == 1 and calibration.merge_gap >= 6 and calibration.min_length > WORD


@pytest.mark.parametrize("bad", [0, 1])
def test_one_class_alone_leaves_what_cannot_be_fitted_and_says_so(bad: int) -> None:
    given, examples = answers([[1.0, -1.0], [0.5, 2.0]], [[bad, bad], [bad, bad]])
    calibration, report = fit_calibration(given, examples, "f1")
    assert (calibration.slope, calibration.bias, calibration.response_weights) == (1.0, 0.0, (1.0, 0.0, 0.0, 0.0, 0.0))
    assert calibration.response_threshold == 0.5
    assert len(report["notes"]) == 3 and "one class only" in report["notes"][0]
    if not bad:
        assert (calibration.char_threshold, report["char_f1"]) == (0.5, 0)


def test_odds_that_fall_with_the_labels_are_not_turned_round() -> None:
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 2, 200)
    upside_down = rng.normal(0, 1, 200) - 2 * gold
    (slope,), bias, note = fit_line(upside_down[:, None], gold)
    assert (slope, bias) == (1, 0) and "do not rise" in note
    weights, bias, note = fit_line(np.stack([upside_down, np.exp(upside_down)], axis=1), gold)
    assert (weights, bias) == ((1, 0), 0) and "do not rise" in note


def test_words_that_the_context_lacks_are_evidence_and_those_of_the_question_are_not() -> None:
    text = "The bridge is red. The tower was sold in 1931!"
    request = Request("A bridge of red stone.", "Was the tower old?", text)
    places = [match.span() for match in re.finditer(r"\w+", text)]
    found = made([request], [places])
    missing = {text[a:b] for (a, b), gone in zip(places, found.missing, strict=True) if gone}
    assert missing == {"sold", "1931"}
    assert len(set(found.sentence)) == 2 and set(found.share[found.sentence == found.sentence[-1]]) == {0.5}
    evidence = found.token_evidence()
    assert evidence[0, 1] == evidence[3, 1] == 1.5, "the mean of the first sentence's four words"


@given(texts=st.lists(st.text("ab İ.\n\u0301", min_size=1, max_size=30), min_size=1, max_size=4))
def test_evidence_of_an_answer_does_not_depend_on_the_others(texts: list[str]) -> None:
    requests = [Request("a", "", text) for text in texts]
    places = [[match.span() for match in re.finditer(r"\S+", text)] or [(0, 0)] for text in texts]
    together = made(requests, places)
    evidence = together.token_evidence()
    for number, (request, place) in enumerate(zip(requests, places, strict=True)):
        own = together.owner == number
        np.testing.assert_allclose(evidence[own], made([request], [place], together.odds[own]).token_evidence())


ROWS = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12)


@given(rows=ROWS)
def test_the_best_f1_is_that_of_the_best_threshold(rows: list[tuple[int, int, int]]) -> None:
    odds, right, more = (np.array(column) for column in zip(*rows, strict=True))
    total = int(right.sum())
    called = [odds >= cut for cut in odds]
    by_hand = [2 * int(right[some].sum()) / max(1, int((right + more)[some].sum()) + total) for some in called]
    assert best_f1(odds.astype(float), right, right + more, total) == pytest.approx(max(by_hand))


def test_parts_joined_are_as_if_they_had_never_been_apart() -> None:
    whole, examples = drawn(count=9)
    parts = []
    for first, last in ((0, 4), (4, 4), (4, 9)):
        own = (whole.owner >= first) & (whole.owner < last)
        places = [[*zip(whole.start[whole.owner == n], whole.end[whole.owner == n], strict=True)] for n in range(9)]
        parts.append(made([request_of(one) for one in examples[first:last]], places[first:last], whole.odds[own]))
    joined = Answers.join(parts)
    np.testing.assert_array_equal(joined.owner, whole.owner)
    np.testing.assert_array_equal(joined.sentence, whole.sentence)
    assert fit_calibration(joined, examples, "f1") == fit_calibration(whole, examples, "f1")
