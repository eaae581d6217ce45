import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn import metrics as sk
from torchmetrics.functional.classification import binary_calibration_error

from faithkit.calibration import (
    apply_temperature,
    assign_bins,
    calibration_error,
    choose_threshold,
    fit_temperature,
    logit,
    reliability,
)
from faithkit.errors import UserError

SCORES = st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.8, 0.9, 1.0]) | st.floats(0, 1)
ROWS = st.lists(st.tuples(SCORES, st.integers(0, 1)), min_size=1, max_size=25)


def columns(rows):
    scores, gold = (np.array(column) for column in zip(*rows, strict=True))
    return scores.astype(float), gold


@given(rows=st.lists(st.tuples(st.floats(-30, 30), st.integers(0, 1)), min_size=1, max_size=30))
def test_no_temperature_within_bounds_is_better(rows):
    logits, gold = columns(rows)
    fitted = fit_temperature(logits, gold)
    assert 0.05 <= fitted.value <= 20
    margins = np.where(gold == 1, logits, -logits)
    if margins.min() < 0:

        def loss(inverse):
            return np.logaddexp(0, -inverse * margins).mean()

        best = minimize_scalar(loss, bounds=(1 / 20, 20), method="bounded", options={"xatol": 1e-10})
        assert fitted.nll_after <= best.fun + 1e-9
        assert fitted.nll_after == pytest.approx(loss(1 / fitted.value), abs=1e-9)
    else:
        assert fitted.value == 1.0
        assert "right side" in fitted.note


def test_scores_of_zero_and_one_have_finite_logits():
    assert np.isfinite(logit([0.0, 1.0])).all()
    assert apply_temperature(logit([0.0, 0.3, 1.0]), 1.0) == pytest.approx([0, 0.3, 1], abs=1e-9)
    assert apply_temperature([-1e6, 1e6], 0.05).tolist() == [0.0, 1.0]


@given(rows=ROWS, aim=st.sampled_from(["f1", "macro_f1", "precision>=0.9", "precision >= 0.6"]))
def test_no_threshold_serves_the_aim_better(rows, aim):
    scores, gold = columns(rows)
    found = choose_threshold(scores, gold, aim)

    def figures(threshold):
        called = scores >= threshold
        options = {"labels": [0, 1], "average": None, "zero_division": 0}
        precision, recall, f1, _ = sk.precision_recall_fscore_support(gold, called, **options)
        return {"precision": precision[1], "recall": recall[1], "f1": f1[1], "macro_f1": f1.mean()}

    assert figures(found.value) == pytest.approx(
        {"precision": found.precision, "recall": found.recall, "f1": found.f1, "macro_f1": found.macro_f1}
    )
    if len(set(gold.tolist())) == 1:
        assert (found.value, found.reached) == (0.5, False)
        return
    every = [figures(threshold) for threshold in [*scores, 2.0]]
    if aim in ("f1", "macro_f1"):
        assert found.reached
        assert getattr(found, aim) == pytest.approx(max(row[aim] for row in every))
        return
    wanted = float(aim.split("=")[1])
    meeting = [row for row in every if row["precision"] >= wanted]
    assert found.reached == bool(meeting)
    if meeting:
        assert found.precision >= wanted
        assert found.recall == pytest.approx(max(row["recall"] for row in meeting))
    else:
        assert found.precision == pytest.approx(max(row["precision"] for row in every))
        assert aim in found.note


def test_a_threshold_stands_midway_and_near_the_middle():
    assert choose_threshold([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], "f1").value == pytest.approx(0.5)
    # Calling none is best: midway between the highest score and 1. Calling all is best: half of the lowest score.
    assert choose_threshold([0.1, 0.6, 0.7, 0.8], [1, 0, 0, 0], "macro_f1").value == pytest.approx(0.9)
    assert choose_threshold([0.1, 0.6, 0.7, 1.0], [1, 0, 0, 0], "macro_f1").value > 1
    assert choose_threshold([0.1, 0.2, 0.3, 0.9], [1, 1, 1, 0], "f1").value == pytest.approx(0.05)
    close = np.nextafter(0.3, 1)
    assert choose_threshold([0.3, close], [0, 1], "f1").value == close


@pytest.mark.parametrize("aim", ["accuracy", "precision>=0", "precision>=1.2", "precision>=", "precision>0.9"])
def test_an_unknown_aim_is_told(aim):
    with pytest.raises(UserError, match="unknown aim"):
        choose_threshold([0.1, 0.9], [0, 1], aim)


@given(rows=ROWS)
def test_the_calibration_error_is_that_of_torchmetrics(rows):
    scores, gold = columns(rows)
    scores = np.minimum(scores, np.nextafter(1.0, 0))  # torchmetrics gives 1.0 a bin of its own
    theirs = binary_calibration_error(torch.tensor(scores), torch.tensor(gold), n_bins=15, norm="l1")
    assert calibration_error(scores, gold) == pytest.approx(float(theirs), abs=1e-9)


def test_the_reliability_table_shows_the_bins_that_hold_rows():
    rows = reliability([0.0, 0.05, 0.5, 1.0], [0, 1, 1, 1], num_bins=10)
    assert [(row.low, row.count, row.hallucinated) for row in rows] == [(0.0, 2, 0.5), (0.5, 1, 1.0), (0.9, 1, 1.0)]
    assert rows[0].mean_score == pytest.approx(0.025)
    assert assign_bins([0.0, 0.2, 0.999, 1.0]).tolist() == [0, 3, 14, 14]


@pytest.mark.parametrize(("scores", "gold"), [([], []), ([0.5], [0, 1]), ([np.nan], [1]), ([0.5], [2])])
def test_values_that_cannot_be_judged_are_refused(scores, gold):
    with pytest.raises(ValueError, match="values"):
        calibration_error(scores, gold)


def test_argmax_chooses_nothing() -> None:
    threshold = choose_threshold([0.1, 0.2, 0.9], [0, 1, 1], "argmax")
    assert threshold.value == 0.5 and threshold.reached and threshold.recall == 0.5
