"""A logistic regression on log-odds and further evidence (Platt 1999), with which critic and tagger are calibrated."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def fit_line(
    features: Floats, gold: NDArray[Any], row_weights: Floats | None = None
) -> tuple[tuple[float, ...], float, str]:
    """Fits a logistic regression of gold labels (Platt 1999); where it cannot, keeps the log-odds as they are.

    Args:
        features: Evidence, the log-odds first [rows, features].
        gold: 0 or 1 [rows].
        row_weights: How much each row counts [rows]; None counts all alike.

    Returns:
        A weight for each feature, the bias, and why nothing was fitted, if so.
    """
    from sklearn.linear_model import LogisticRegression

    plain = (1.0, *(0.0 for _ in range(features.shape[1] - 1)))
    if len(np.unique(gold)) < 2:
        return plain, 0.0, "validation has one class only, so nothing was calibrated"
    fitted = LogisticRegression(C=1.0, max_iter=1000).fit(features, gold, row_weights)
    weights = tuple(float(weight) for weight in fitted.coef_[0])
    if np.cov(fitted.decision_function(features), features[:, 0])[0, 1] <= 0:
        return plain, 0.0, "the scores do not rise with the labels on validation, so nothing was calibrated"
    return weights, float(fitted.intercept_[0]), ""


def linear(evidence: Floats, weights: tuple[float, ...]) -> Floats:
    """Weighs evidence [rows, features]; the last weight is the bias."""
    return evidence @ np.array(weights[:-1]) + weights[-1]


def sigmoid(values: Any) -> Floats:
    """Turns log-odds into probabilities."""
    return np.exp(-np.logaddexp(0.0, -np.asarray(values, np.float64)))
