"""A cascade uses the expensive detector where the cheap one is unsure, within its budget."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit import Cascade
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit_workflows.detectors import cascade as module
from faithkit_workflows.detectors.cascade import Band, RecordedPredictions, choose_band_by_budget
from tests.data_modules.examples import example

SHARES = st.floats(0, 1)


def predictions_of(scores: Sequence[float], threshold: float = 0.5) -> list[Prediction]:
    labels = [HALLUCINATED if score >= threshold else FAITHFUL for score in scores]
    pairs = zip(scores, labels, strict=True)
    return [Prediction(id=str(i), label=label, score=score) for i, (score, label) in enumerate(pairs)]


def rows(golds: Sequence[bool]) -> list[Example]:
    return [example(id=str(i), label=HALLUCINATED if gold else FAITHFUL) for i, gold in enumerate(golds)]


class Expensive:
    """Calls hallucinated what says twelve, with the probability that a test sets; counts what it is asked."""

    def __init__(self, score: float | None = 0.9, label: str | None = None):
        self.score, self.label, self.asked = score, label, []  # type: ignore[var-annotated]

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        for one in examples:
            self.asked.append(one.id)
            label = self.label or (HALLUCINATED if "twelve" in one.response else FAITHFUL)
            yield Prediction(id=one.id, label=label, score=self.score, text="so it is")


def cascade_options(scores: Sequence[float], expensive: Expensive, band: Band) -> Cascade:
    return Cascade(RecordedPredictions({one.id: one for one in predictions_of(scores)}), expensive, band)


def test_the_expensive_detector_decides_inside_the_band_and_is_asked_nothing_else() -> None:
    examples = [example(id=str(i), response=text) for i, text in enumerate(["ten", "twelve", "ten", "twelve"])]
    expensive = Expensive()
    cascade = cascade_options([0.1, 0.3, 0.6, 0.9], expensive, Band(low=0.3, high=0.6))
    found = list(cascade.predict_examples(examples))
    assert expensive.asked == ["1", "2"] and cascade.num_asked == 2
    assert [one.label for one in found] == [FAITHFUL, HALLUCINATED, FAITHFUL, HALLUCINATED]
    assert [one.text for one in found] == ["", "so it is", "so it is", ""]
    scores = [one.score or 0 for one in found]
    assert scores == pytest.approx([0.1, 0.3 + 0.9 * 0.3, 0.3 + 0.9 * 0.3, 0.9])
    alone = [next(cascade.predict_examples([one])) for one in examples]
    assert alone == found


def test_a_reply_that_cannot_be_read_leaves_the_cheap_verdict_and_one_without_score_stands_at_an_end() -> None:
    band = Band(low=0.2, high=0.8)
    (unread,) = cascade_options([0.6], Expensive(label=UNPARSED), band).predict_examples(rows([True]))
    assert (unread.label, unread.score, unread.text) == (HALLUCINATED, 0.6, "so it is")
    (sure,) = cascade_options([0.6], Expensive(score=None, label=FAITHFUL), band).predict_examples(rows([True]))
    assert (sure.label, sure.score) == (FAITHFUL, 0.2)


@given(st.lists(SHARES, min_size=1, max_size=40), SHARES, st.floats(0.01, 1))
def test_a_budget_is_kept_on_the_rows_that_it_was_chosen_on(scores, threshold, budget) -> None:
    found = predictions_of(scores, threshold)
    band = choose_band_by_budget(found, budget)
    assert sum(map(band.contains, found)) <= budget * len(found) + 1e-6
    larger = choose_band_by_budget(found, min(1.0, 2 * budget))
    assert not [one for one in found if band.contains(one) and not larger.contains(one)], "bands lie within each other"


def test_the_band_of_a_budget_lies_around_the_threshold() -> None:
    found = predictions_of([i / 50 for i in range(1, 50)], threshold=0.3)
    band = choose_band_by_budget(found, 0.2)
    asked = [one.score for one in found if band.contains(one)]
    assert len(asked) == 9 and min(asked) < 0.3 < max(asked)  # type: ignore[type-var]
    assert all(map(choose_band_by_budget(found, 1.0).contains, found))
    equal = predictions_of([0.5] * 9)
    assert not any(map(module.NOTHING.contains, found))
    assert not any(map(choose_band_by_budget(equal, 0.5).contains, equal))


def test_the_band_of_a_precision_ends_where_the_cheap_detector_is_right_often_enough() -> None:
    scores, golds = [0.1, 0.2, 0.3, 0.6, 0.7, 0.8, 0.9], [False, False, True, False, True, True, True]
    band = module.choose_band_by_precision(rows(golds), predictions_of(scores), 1.0)
    assert [one.score for one in predictions_of(scores) if band.contains(one)] == [0.3, 0.6]
    sure = module.choose_band_by_precision(rows([s > 0.5 for s in scores]), predictions_of(scores), 1.0)
    assert not any(map(sure.contains, predictions_of(scores))), "nothing is asked of a detector that is always right"
    wrong = module.choose_band_by_precision(rows([s < 0.5 for s in scores]), predictions_of(scores), 0.9)
    assert all(map(wrong.contains, predictions_of(scores))), "one that is always wrong is never trusted"


@given(st.lists(st.tuples(SHARES, st.booleans()), min_size=2, max_size=40), SHARES, st.floats(0.01, 1))
def test_outside_the_band_of_a_precision_calls_are_right_so_often(pairs, threshold, precision) -> None:
    found, golds = predictions_of([score for score, _ in pairs], threshold), [gold for _, gold in pairs]
    band = module.choose_band_by_precision(rows(golds), found, precision)
    for label in (HALLUCINATED, FAITHFUL):
        right = [
            gold == (label == HALLUCINATED)
            for one, gold in zip(found, golds, strict=True)
            if one.label == label and not band.contains(one)
        ]
        assert not right or sum(right) / len(right) >= precision - 1e-9


def test_a_cascade_is_fitted_on_rows_without_asking_the_expensive_detector() -> None:
    found, expensive = predictions_of([0.05, 0.4, 0.55, 0.95]), Expensive()
    for options in ({"budget": 0.5}, {"precision": 1.0}):
        cheap = RecordedPredictions({one.id: one for one in found})
        fitted = Cascade.fit(cheap, expensive, rows([False, True, False, True]), **options)
        assert not expensive.asked and [fitted.band.contains(one) for one in found] == [False, True, True, False]


def test_what_a_cascade_cannot_be_fitted_on_is_explained() -> None:
    unscored, scored = Prediction(id="0", label=FAITHFUL), predictions_of([0.5])[0]
    cases: list[tuple[Prediction, list[Example], dict[str, float], str]] = [
        (unscored, rows([True]), {}, "a budget or a precision"),
        (unscored, rows([True]), {"budget": 0.5}, "has no scores"),
        (scored, [example(id="0", label=None)], {"precision": 0.9}, "no labelled row"),
        (unscored, [], {"budget": 0.5}, "no rows to choose"),
    ]
    for said, fit_on, options, words in cases:
        with pytest.raises(UserError, match=words):
            Cascade.fit(RecordedPredictions({"0": said}), Expensive(), fit_on, **options)
