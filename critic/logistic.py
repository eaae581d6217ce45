"""Logistic regression on log-odds and further features (Platt 1999), which calibrates critics and taggers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def fit_line(
    features: Floats,
    gold: NDArray[Any],
    row_weights: Floats | None = None,
    indicators: Floats | None = None,
    *,
    leads: bool = True,
) -> tuple[tuple[float, ...], float, str]:
    """Fits a logistic regression of gold labels (Platt 1999); keeps the first feature unchanged if it cannot be fitted.

    Args:
        features: [rows, features].
        gold: 0 or 1 [rows].
        row_weights: Weight of each row [rows]; None weighs all equally.
        indicators: 1 for the dataset of a row [rows, datasets]: each dataset gets a separate bias, and the mean bias is
            returned. Otherwise the features would also be used to distinguish datasets.
        leads: The first feature is a detector's log-odds, whose ranking within datasets must not be reversed.

    Returns:
        A weight for each feature, the bias, and the reason if nothing was fitted.
    """
    from sklearn.linear_model import LogisticRegression

    unchanged = (1.0, *(0.0 for _ in range(features.shape[1] - 1)))
    if len(np.unique(gold)) < 2:
        return unchanged, 0.0, "the labelled rows have one class only, so nothing was fitted"
    columns = features if indicators is None else np.concatenate([features, indicators], axis=1)
    fitted = LogisticRegression(C=1.0, max_iter=1000).fit(columns, gold, row_weights)
    weights, biases = np.split(fitted.coef_[0], [features.shape[1]])
    if leads:  # the covariance of the scores with the log-odds, within datasets
        member = np.ones((len(features), 1)) if indicators is None else indicators
        scores = (features @ weights, features[:, 0])
        first, second = (values - member @ (values @ member / member.sum(axis=0)) for values in scores)
        if float(first @ second) <= 0:
            return unchanged, 0.0, "the scores do not rise with the labels, so nothing was fitted"
    bias = float(fitted.intercept_[0]) + (float(biases.mean()) if len(biases) else 0.0)
    return tuple(float(weight) for weight in weights), bias, ""


def linear(evidence: Floats, weights: tuple[float, ...]) -> Floats:
    """Computes the weighted sum of features [rows, features]; the last weight is the bias.

    It sums column by column, because a matrix product sums a single row in another order than many rows, and a score
    would depend on its batch in the last digit.
    """
    total = np.zeros(len(evidence))
    for column, weight in zip(evidence.T, weights[:-1], strict=True):
        total += column * weight
    return total + weights[-1]


def sigmoid(values: Any) -> Floats:
    """Converts log-odds to probabilities."""
    return np.exp(-np.logaddexp(0.0, -np.asarray(values, np.float64)))
