"""The metrics of a validation: those of the test, without intervals, and the loss."""

import numpy as np
from numpy.typing import ArrayLike

from faithkit.metrics.classification import statistic
from faithkit.metrics.outcomes import Outcomes
from faithkit.statistics.intervals import Groups


def metrics_of_scores(scores: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Computes the classification metrics at threshold 0.5, and the loss.

    Args:
        scores: P(hallucinated) [rows].
        labels: 1 for hallucinated [rows].
    """
    found, gold = np.asarray(scores, np.float64), np.asarray(labels, np.int8)
    groups = Groups.of(map(str, range(len(gold))))
    outcomes = Outcomes(gold=gold, called=(found >= 0.5).astype(np.int8), scores=found, groups=groups)
    metrics = {name: float(value[0]) for name, value in statistic(outcomes)(np.ones((1, len(gold)))).items()}
    right = np.where(gold == 1, found, 1 - found)
    metrics["loss"] = float(-np.log(np.maximum(right, 1e-12)).mean())
    return metrics
