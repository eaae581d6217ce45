"""Log-odds of a classifier's classes, and the labels that a calibration gives."""

import numpy as np
import pytest

from faithkit.calibration import ScoreCalibration, log_odds


def test_classes_of_one_meaning_are_taken_together() -> None:
    """Odds of 1 : 3 between two classes; of three, the last two mean hallucinated: 2 + 3 against 1."""
    assert log_odds(np.log([[3.0, 1.0], [1.0, 1.0]])) == pytest.approx([np.log(1 / 3), 0])
    assert log_odds(np.log([[1.0, 2.0, 3.0]]), (False, True, True)) == pytest.approx([np.log(5)])


def test_what_is_not_fitted_leaves_probabilities_and_calls_from_a_half_on() -> None:
    plain = ScoreCalibration()
    assert plain.scores(np.log([3.0, 1.0, 0.5])) == pytest.approx([3 / 4, 1 / 2, 1 / 3])
    labels = [one.label for one in plain.predictions(["a", "b"], [0.5, 0.49])]
    assert labels == ["hallucinated", "faithful"]
    assert plain.label(0.5, threshold=0.6) == "faithful"
