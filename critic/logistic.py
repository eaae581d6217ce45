"""A logistic regression on log-odds and further evidence (Platt 1999), with which critic and tagger are calibrated."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def fit_line(
    features: Floats,
    gold: NDArray[Any],
    row_weights: Floats | None = None,
    shifts: Floats | None = None,
    *,
    leads: bool = True,
) -> tuple[tuple[float, ...], float, str]:
    """Fits a logistic regression of gold labels (Platt 1999); where it cannot, keeps the first feature as it is.

    Args:
        features: Evidence [rows, features].
        gold: 0 or 1 [rows].
        row_weights: How much each row counts [rows]; None counts all alike.
        shifts: Tells which dataset a row is of [rows, datasets], 1 for its own: each gets a bias of its own, and the
            bias that is returned is their mean. Else the features would be weighed to tell datasets apart too.
        leads: The first feature is a detector's own log-odds, whose order within datasets a fit must not turn round.

    Returns:
        A weight for each feature, the bias, and why nothing was fitted, if so.
    """
    from sklearn.linear_model import LogisticRegression

    plain = (1.0, *(0.0 for _ in range(features.shape[1] - 1)))
    if len(np.unique(gold)) < 2:
        return plain, 0.0, "the labelled rows have one class only, so nothing was fitted"
    columns = features if shifts is None else np.concatenate([features, shifts], axis=1)
    fitted = LogisticRegression(C=1.0, max_iter=1000).fit(columns, gold, row_weights)
    own, biases = np.split(fitted.coef_[0], [features.shape[1]])
    if leads and _covariance(features @ own, features[:, 0], shifts) <= 0:
        return plain, 0.0, "the scores do not rise with the labels, so nothing was fitted"
    bias = float(fitted.intercept_[0]) + (float(biases.mean()) if len(biases) else 0.0)
    return tuple(float(weight) for weight in own), bias, ""


def _covariance(first: Floats, second: Floats, shifts: Floats | None) -> float:
    """Computes the covariance of two scores within datasets: levels that differ between datasets say nothing."""
    member = np.ones((len(first), 1)) if shifts is None else shifts
    rest = [one - member @ (one @ member / member.sum(axis=0)) for one in (first, second)]
    return float(rest[0] @ rest[1])


def linear(evidence: Floats, weights: tuple[float, ...]) -> Floats:
    """Weighs evidence [rows, features]; the last weight is the bias.

    Column by column: a matrix product adds up one row in another order than many, and a score would differ in its last
    digit with the batch.
    """
    total = np.zeros(len(evidence))
    for column, weight in zip(evidence.T, weights[:-1], strict=True):
        total += column * weight
    return total + weights[-1]


def sigmoid(values: Any) -> Floats:
    """Turns log-odds into probabilities."""
    return np.exp(-np.logaddexp(0.0, -np.asarray(values, np.float64)))
