"""Calibrated probabilities and spans of a tagger, worked out by hand."""

import numpy as np
import pytest

from critic.requests import Request
from critic.tagger.calibration_features import words_of
from critic.tagger.span_calibration import SpanCalibration


def test_without_weights_the_odds_of_tokens_are_scaled_and_shifted() -> None:
    """Platt scaling: the log-odds of 3 and 1/3 are ln 3 and -ln 3."""
    calibration = SpanCalibration(slope=2.0, bias=np.log(3.0))
    found = calibration.probabilities(np.log([3.0, 1.0, 1 / 3]))
    assert found == pytest.approx([27 / 28, 3 / 4, 1 / 4])


def test_what_is_not_fitted_joins_no_spans_and_drops_none() -> None:
    """`a-b`, of which the hyphen is right."""
    start, owner = np.arange(3), np.zeros(3, int)
    words = words_of(start, start + 1, owner, [Request("", "", "a-b")])
    found = SpanCalibration().spans(words, np.array([0.5, 0.4, 0.5]), owner)
    assert (found.start.tolist(), found.end.tolist()) == ([0, 2], [1, 3])
