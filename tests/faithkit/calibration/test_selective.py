"""A verdict that is likely to be wrong is left out, and no other."""

from hypothesis import given
from hypothesis import strategies as st

from faithkit.calibration import drop_unsure_labels
from faithkit.records import FAITHFUL, HALLUCINATED, LABELS, UNPARSED, Prediction, Span

PROBABILITY = st.floats(0, 1)


@given(st.lists(st.tuples(st.sampled_from(LABELS), PROBABILITY), min_size=1), PROBABILITY)
def test_labels_stay_that_are_right_as_often_as_wanted(rows: list[tuple[str, float]], wanted: float) -> None:
    given_ones = [Prediction(id=str(n), label=label, score=score) for n, (label, score) in enumerate(rows)]
    for before, after in zip(given_ones, drop_unsure_labels(given_ones, wanted), strict=True):
        chance = before.score if before.label == HALLUCINATED else 1 - (before.score or 0)
        assert (after.label is None) == ((chance or 0) < wanted)
        assert after.label in (None, before.label) and after.score == before.score and after.id == before.id


def test_nothing_is_left_out_without_a_wish_and_without_a_probability() -> None:
    unsure = Prediction(id="a", label=HALLUCINATED, score=0.51, spans=(Span(start=0, end=2, label="hallucinated"),))
    others = [Prediction(id="b", label=FAITHFUL), Prediction(id="c", label=UNPARSED, score=0.5)]
    assert list(drop_unsure_labels([unsure, *others], None)) == [unsure, *others]
    (left_out, *rest) = drop_unsure_labels([unsure, *others], 0.9)
    assert rest == others and left_out == Prediction(id="a", score=0.51)
