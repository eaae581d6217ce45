"""What the board says of systems is what they say alone, and the difference of each two."""

import numpy as np
import pytest

from faithkit.metrics.classification import Outcomes, classification_metrics, classification_statistic, evaluate_labels
from faithkit.metrics.span_metrics import LEVELS, SHARES
from faithkit.scores.board import Board, correct_by_holm
from faithkit.scores.measures import LABELS, kind_of, measure_of
from faithkit.statistics.bootstrap import Groups


def outcomes(share_right: float, seed: int, *, num_rows: int = 120) -> Outcomes:
    """Draws the verdicts of a detector that is right on a share of rows; every detector judges the same rows."""
    gold = (np.arange(num_rows) % 3 == 0).astype(np.int8)
    right = np.random.default_rng(seed).random(num_rows) < share_right
    called = np.where(right, gold, 1 - gold).astype(np.int8)
    return Outcomes(gold=gold, called=called, scores=0.2 + 0.6 * called, groups=Groups(np.arange(num_rows) // 2, 60))


@pytest.fixture
def board() -> Board:
    board = Board("rows", num_resamples=100)
    board.add("model", evaluate_labels(outcomes(0.9, 1)), title="the model")
    board.add("weak", evaluate_labels(outcomes(0.55, 2)), title="word overlap", is_baseline=True)
    board.add("strong", evaluate_labels(outcomes(0.7, 3)), title="trees", is_baseline=True)
    return board


def test_metrics_and_differences_are_those_of_the_systems_alone(board: Board) -> None:
    model, strong = outcomes(0.9, 1), outcomes(0.7, 3)
    alone = classification_metrics(model, num_resamples=100)
    assert board.metrics("model") == alone.metrics and board.notes("model") == alone.notes
    expected = evaluate_labels(model).subtract(evaluate_labels(strong), num_resamples=100)
    assert board.subtract("model", "strong") == expected
    assert board.subtract("model", "strong", ["auroc"]) == {"auroc": expected["auroc"]}
    assert board.subtract("strong", "model")["accuracy"].value == -expected["accuracy"].value


def test_a_conclusion_names_the_strongest_baseline(board: Board) -> None:
    assert board.strongest("macro_f1") == "strong" and board.strongest("no such metric") is None
    found = board.conclude("model", {"macro_f1": "macro-F1"})
    assert found is not None and "the model is better than trees, the strongest simple baseline" in found.text
    assert board.conclude("model", {"no such metric": "-"}) is None


def test_every_two_systems_are_corrected_together(board: Board) -> None:
    pairs = board.pairs(board.systems)
    assert [(one.first, one.second) for one in pairs] == [("model", "weak"), ("model", "strong"), ("weak", "strong")]
    raw = [one.differences["accuracy"].p_value for one in pairs]
    assert [one.corrected["accuracy"] for one in pairs] == correct_by_holm(raw)
    for pair in pairs:
        assert pair.mcnemar is not None and pair.mcnemar.corrected >= pair.mcnemar.p_value


def test_holms_correction_by_hand() -> None:
    assert correct_by_holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correct_by_holm([0.9, 0.5]) == [1.0, 1.0] and correct_by_holm([]) == []


def test_every_metric_of_detectors_is_declared() -> None:
    computed = classification_statistic(outcomes(0.9, 1))(np.ones((1, 60)))
    assert set(computed) == set(LABELS)
    for name in (f"{level}_{share}" for level in LEVELS for share in SHARES):
        assert measure_of(f"test/ragtruth/{name}") is not None, name


def test_kinds_of_differences_and_p_values_follow_from_the_metric() -> None:
    assert measure_of("test/a/unknown") is None and kind_of("test/a/unknown") is None
    difference, p_value = kind_of("test/a/difference/overlap_ece"), kind_of("test/a/p_value/overlap_ece")
    assert difference is not None and (difference.low, difference.higher_is_better) == (-1, False)
    assert p_value is not None and (p_value.low, p_value.high) == (0, 1)
