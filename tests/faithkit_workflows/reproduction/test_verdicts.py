"""Properties of verdicts, for any numbers."""

from hypothesis import assume, given
from hypothesis import strategies as st

from faithkit_workflows.reproduction.cells import ABOVE, BELOW, WITHIN, Estimate, compare_with_published, count_digits

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)
WIDTHS = st.floats(0, 1e3, allow_nan=False)
DIGITS = st.integers(0, 4)
OPPOSITE = {ABOVE: BELOW, BELOW: ABOVE, WITHIN: WITHIN}


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    value = draw(NUMBERS)
    if draw(st.booleans()):
        return Estimate(value=value)
    return Estimate(value=value, low=value - draw(WIDTHS), high=value + draw(WIDTHS))


@given(estimates(), NUMBERS, DIGITS)
def test_a_mirrored_pair_has_the_opposite_verdict(ours: Estimate, published: float, digits: int) -> None:
    mirrored = Estimate(
        value=-ours.value,
        low=None if ours.high is None else -ours.high,
        high=None if ours.low is None else -ours.low,
    )
    assert (
        compare_with_published(mirrored, -published, digits=digits)
        == OPPOSITE[compare_with_published(ours, published, digits=digits)]
    )


@given(NUMBERS, DIGITS)
def test_the_figure_that_was_rounded_is_within(value: float, digits: int) -> None:
    assert compare_with_published(Estimate(value=value), round(value, digits), digits=digits) == WITHIN


@given(NUMBERS, WIDTHS, WIDTHS, st.floats(0, 1), DIGITS)
def test_all_that_lies_in_our_interval_is_within(
    value: float, below: float, above: float, place: float, digits: int
) -> None:
    low, high = value - below, value + above
    published = min(max(low + place * (high - low), low), high)
    assert compare_with_published(Estimate(value=value, low=low, high=high), published, digits=digits) == WITHIN


@given(estimates(), NUMBERS, DIGITS)
def test_outside_of_interval_and_rounding_it_is_above_or_below(ours: Estimate, published: float, digits: int) -> None:
    low, high = (ours.value if bound is None else bound for bound in (ours.low, ours.high))
    away = 10.0**-digits + 1e-6 * max(1, abs(published))
    assume(published > high + away or published < low - away)
    assert compare_with_published(ours, published, digits=digits) == (BELOW if published > high else ABOVE)


@given(estimates(), st.floats(0, 1), DIGITS, WIDTHS)
def test_a_wider_interval_never_leaves_within(ours: Estimate, place: float, digits: int, more: float) -> None:
    low, high = (ours.value if bound is None else bound for bound in (ours.low, ours.high))
    published = min(max(low + place * (high - low), low), high)
    assert compare_with_published(ours, published, digits=digits) == WITHIN
    wider = Estimate(value=ours.value, low=low - more, high=high + more)
    assert compare_with_published(wider, published, digits=digits) == WITHIN


def test_digits_are_those_of_the_whole_column() -> None:
    assert count_digits([52.0, 51.84, None]) == 2
    assert count_digits([100.0, 0.2]) == 1
    assert count_digits([748, 12]) == 0
