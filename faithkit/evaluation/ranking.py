"""Metrics of the order that scores give: area under the ROC curve and average precision, for many resamples at once."""

import numpy as np
from numpy.typing import ArrayLike

from faithkit.evaluation.intervals import Groups, Values

BLOCK = 1 << 16  # resamples x rows worked on at once: what stays in a core's cache


class Ranking:
    """AUROC and average precision of P(hallucinated) under group weights, values equal to scikit-learn's.

    Rows are sorted once. A resample changes only their weights, so each costs two cumulative sums.

    Args:
        scores: P(hallucinated) [N], no NaN.
        gold: 1 where hallucinated [N].
        groups: The rows' groups.
    """

    def __init__(self, scores: ArrayLike, gold: ArrayLike, groups: Groups):
        values = np.asarray(scores, np.float64)
        order = np.argsort(-values, kind="stable")
        self._groups = groups.index[order]
        self._positive = np.asarray(gold, np.float64)[order]
        # Rows of equal score come in together: the curves have a point only at the end of each run of ties.
        starts = np.flatnonzero(np.diff(values[order], prepend=np.inf))
        self._starts = starts if len(starts) < len(values) else None

    def __call__(self, weights: Values) -> dict[str, Values]:
        """From weights [R, G] to values [R], NaN where a resample holds one class only."""
        rows = max(1, BLOCK // len(self._groups))
        blocks = [self._block(weights[start : start + rows]) for start in range(0, len(weights), rows)]
        auroc, average_precision = np.concatenate(blocks, axis=1)
        return {"auroc": auroc, "average_precision": average_precision}

    def _block(self, weights: Values) -> Values:
        new = np.take(weights, self._groups, axis=1)  # [r, N], the highest score first
        new_hits = new * self._positive
        if self._starts is not None:
            new = np.add.reduceat(new, self._starts, axis=1)  # [r, T]: one column for each distinct score
            new_hits = np.add.reduceat(new_hits, self._starts, axis=1)
        called = np.cumsum(new, axis=1)  # called hallucinated down to this score
        hits = np.cumsum(new_hits, axis=1)  # of these, rightly so
        positives, total = hits[:, -1].copy(), called[:, -1].copy()  # the rest is overwritten below
        both = (positives > 0) & (positives < total)
        # Pairs of a hallucinated and a faithful row, less those in the wrong order, ties counted half. Written with
        # all rows in the place of the faithful ones: the hallucinated among them add up to positives^2 / 2.
        pairs = np.where(both, positives * (total - positives), np.nan)
        ordered = pairs + positives**2 / 2 - _dot(new_hits, called) + _dot(new_hits, new) / 2
        # Precision summed over the steps of recall, without interpolation (Saito & Rehmsmeier 2015).
        hits /= np.maximum(called, 1.0, out=called)
        return np.stack([ordered / pairs, _dot(new_hits, hits) / np.where(both, positives, np.nan)])


def _dot(first: Values, second: Values) -> Values:
    return np.einsum("rt,rt->r", first, second)
