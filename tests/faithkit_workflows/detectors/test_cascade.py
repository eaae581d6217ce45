"""A cascade asks the dear detector where the cheap one is unsure, and no more often than it is told to."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit import Cascade
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit_workflows.detectors.cascade import EVERYTHING, NOTHING, Band, Recorded, band_of_budget, band_of_precision
from tests.data_modules.examples import example

SHARES = st.floats(0, 1)


def said(scores: Sequence[float], threshold: float = 0.5) -> list[Prediction]:
    labels = [HALLUCINATED if score >= threshold else FAITHFUL for score in scores]
    return [
        Prediction(id=str(i), label=label, score=s) for i, (s, label) in enumerate(zip(scores, labels, strict=True))
    ]


def rows(golds: Sequence[bool]) -> list[Example]:
    return [example(id=str(i), label=HALLUCINATED if gold else FAITHFUL) for i, gold in enumerate(golds)]


class Dear:
    """Calls hallucinated what says twelve, with the probability that a test sets; counts what it is asked."""

    def __init__(self, score: float | None = 0.9, label: str | None = None):
        self.score, self.label, self.asked = score, label, []  # type: ignore[var-annotated]

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        for one in examples:
            self.asked.append(one.id)
            label = self.label or (HALLUCINATED if "twelve" in one.response else FAITHFUL)
            yield Prediction(id=one.id, label=label, score=self.score, text="so it is")


def cascade_of(scores: Sequence[float], dear: Dear, band: Band) -> Cascade:
    return Cascade(Recorded({one.id: one for one in said(scores)}), dear, band)


def test_the_dear_detector_decides_inside_the_band_and_is_asked_nothing_else() -> None:
    examples = [example(id=str(i), response=text) for i, text in enumerate(["ten", "twelve", "ten", "twelve"])]
    dear = Dear()
    cascade = cascade_of([0.1, 0.3, 0.6, 0.9], dear, Band(low=0.3, high=0.6))
    found = list(cascade.predict_examples(examples))
    assert dear.asked == ["1", "2"] and cascade.num_asked == 2
    assert [one.label for one in found] == [FAITHFUL, HALLUCINATED, FAITHFUL, HALLUCINATED]
    assert [one.text for one in found] == ["", "so it is", "so it is", ""]
    scores = [one.score or 0 for one in found]
    assert scores == pytest.approx([0.1, 0.3 + 0.9 * 0.3, 0.3 + 0.9 * 0.3, 0.9])
    alone = [next(cascade.predict_examples([one])) for one in examples]
    assert alone == found


def test_a_reply_that_cannot_be_read_leaves_the_cheap_verdict_and_one_without_score_stands_at_an_end() -> None:
    band = Band(low=0.2, high=0.8)
    (unread,) = cascade_of([0.6], Dear(label=UNPARSED), band).predict_examples(rows([True]))
    assert (unread.label, unread.score, unread.text) == (HALLUCINATED, 0.6, "so it is")
    (sure,) = cascade_of([0.6], Dear(score=None, label=FAITHFUL), band).predict_examples(rows([True]))
    assert (sure.label, sure.score) == (FAITHFUL, 0.2)


@given(st.lists(SHARES, min_size=1, max_size=40), SHARES, st.floats(0.01, 1))
def test_a_budget_is_kept_on_the_rows_that_it_was_chosen_on(
    scores: list[float], threshold: float, budget: float
) -> None:
    found = said(scores, threshold)
    band = band_of_budget(found, budget)
    assert sum(map(band.asks, found)) <= budget * len(found) + 1e-6
    larger = band_of_budget(found, min(1.0, 2 * budget))
    assert not [one for one in found if band.asks(one) and not larger.asks(one)], "bands lie within each other"


def test_the_band_of_a_budget_lies_around_the_threshold() -> None:
    found = said([i / 50 for i in range(1, 50)], threshold=0.3)
    band = band_of_budget(found, 0.2)
    asked = [one.score for one in found if band.asks(one)]
    assert len(asked) == 9 and min(asked) < 0.3 < max(asked)  # type: ignore[type-var]
    assert band_of_budget(found, 1.0).asks(found[0]) and EVERYTHING.asks(found[-1])
    assert not any(map(NOTHING.asks, found)) and not any(
        map(band_of_budget(said([0.5] * 9), 0.5).asks, said([0.5] * 9))
    )


def test_the_band_of_a_precision_ends_where_the_cheap_detector_is_right_often_enough() -> None:
    scores, golds = [0.1, 0.2, 0.3, 0.6, 0.7, 0.8, 0.9], [False, False, True, False, True, True, True]
    band = band_of_precision(rows(golds), said(scores), 1.0)
    assert [one.score for one in said(scores) if band.asks(one)] == [0.3, 0.6]
    sure = band_of_precision(rows([s > 0.5 for s in scores]), said(scores), 1.0)
    assert not any(map(sure.asks, said(scores))), "nothing is asked of a detector that is always right"
    wrong = band_of_precision(rows([s < 0.5 for s in scores]), said(scores), 0.9)
    assert all(map(wrong.asks, said(scores))), "one that is always wrong is never trusted"


@given(st.lists(st.tuples(SHARES, st.booleans()), min_size=2, max_size=40), SHARES, st.floats(0.01, 1))
def test_outside_the_band_of_a_precision_calls_are_right_so_often(
    pairs: list[tuple[float, bool]], threshold: float, precision: float
) -> None:
    found, golds = said([score for score, _ in pairs], threshold), [gold for _, gold in pairs]
    band = band_of_precision(rows(golds), found, precision)
    for label in (HALLUCINATED, FAITHFUL):
        right = [
            gold == (label == HALLUCINATED)
            for one, gold in zip(found, golds, strict=True)
            if one.label == label and not band.asks(one)
        ]
        assert not right or sum(right) / len(right) >= precision - 1e-9


def test_a_cascade_is_fitted_on_rows_without_asking_the_dear_detector() -> None:
    scores = [0.05, 0.4, 0.55, 0.95]
    cheap, dear = Recorded({one.id: one for one in said(scores)}), Dear()
    fitted = Cascade.fit(cheap, dear, rows([False, True, False, True]), budget=0.5)
    assert not dear.asked and [fitted.band.asks(one) for one in said(scores)] == [False, True, True, False]
    strict = Cascade.fit(cheap, dear, rows([False, True, False, True]), precision=1.0)
    assert [strict.band.asks(one) for one in said(scores)] == [False, True, True, False]


def test_what_a_cascade_cannot_be_fitted_on_is_explained() -> None:
    cheap = Recorded({"0": Prediction(id="0", label=FAITHFUL)})
    with pytest.raises(UserError, match="a budget or a precision"):
        Cascade.fit(cheap, Dear(), rows([True]))
    with pytest.raises(UserError, match="gives no scores"):
        Cascade.fit(cheap, Dear(), rows([True]), budget=0.5)
    with pytest.raises(UserError, match="no row with a label"):
        Cascade.fit(Recorded({"0": said([0.5])[0]}), Dear(), [example(id="0", label=None)], precision=0.9)
    with pytest.raises(UserError, match="no row to choose"):
        Cascade.fit(cheap, Dear(), [], budget=0.5)
