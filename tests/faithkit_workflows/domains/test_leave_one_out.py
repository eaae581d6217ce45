"""Baselines that are fitted for a domain on other domains only."""

import numpy as np

from faithkit.baselines.counted_features import Values
from faithkit_workflows.domains.leave_one_out import THRESHOLD, fit_regression


def draw_rows(seed: int, size: int = 200, share: float = 0.5, sign: float = 1.0) -> tuple[Values, Values]:
    """Draws rows whose first feature predicts the label, with this sign."""
    generator = np.random.default_rng(seed)
    gold = np.arange(size) < share * size
    return np.column_stack([sign * (gold + generator.normal(0, 0.4, size)), generator.normal(0, 1, size)]), gold


def test_a_baseline_orders_a_domain_that_it_was_not_trained_on() -> None:
    features, gold = draw_rows(9)
    scores = fit_regression([draw_rows(1), draw_rows(2)]).predict_proba(features)[:, 1]
    assert scores[gold].mean() > scores[~gold].mean() + 0.3
    turned = fit_regression([draw_rows(1, sign=-1), draw_rows(2, sign=-1)]).predict_proba(features)[:, 1]
    assert turned[gold].mean() < turned[~gold].mean()


def test_a_threshold_calls_both_classes_where_the_largest_domain_is_nearly_all_hallucinated() -> None:
    features, gold = draw_rows(9)
    model = fit_regression([draw_rows(1, 2000, 0.95), draw_rows(2, 100), draw_rows(3, 100)])
    called = model.predict_proba(features)[:, 1] >= THRESHOLD
    assert called[gold].mean() > 0.7 and (~called[~gold]).mean() > 0.7
