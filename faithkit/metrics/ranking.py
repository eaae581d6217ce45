"""Metrics of the order that scores give, for many resamples at once.

AUROC is the share of pairs of a hallucinated and a faithful row in which the hallucinated one scores higher, ties
counted half. Average precision is sum_t (recall_t - recall_{t-1}) * precision_t over the distinct scores t, from the
highest (Saito & Rehmsmeier 2015 on why it suits rare classes better). Use them to compare detectors whatever their
threshold; neither says that the scores are calibrated, or that a good threshold is known.
"""

import numpy as np
from numpy.typing import ArrayLike

from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.spread import Values

BLOCK = 1 << 16  # resamples x rows worked on at once: what stays in a core's cache


class Ranking:
    """Computes AUROC and average precision of P(hallucinated) under group weights, equal to scikit-learn's.

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
        """Maps weights [R, G] to values [R], NaN where a resample holds one class only."""
        rows = max(1, BLOCK // len(self._groups))
        blocks = [self._block(weights[start : start + rows]) for start in range(0, len(weights), rows)]
        auroc, average_precision = np.concatenate(blocks, axis=1)
        return {"auroc": auroc, "average_precision": average_precision}

    def _block(self, weights: Values) -> Values:
        drawn = np.take(weights, self._groups, axis=1)  # [r, N]: how often each row was drawn, highest score first
        hallucinated = drawn * self._positive
        if self._starts is not None:  # [r, T]: rows of one score as one column
            drawn = np.add.reduceat(drawn, self._starts, axis=1)
            hallucinated = np.add.reduceat(hallucinated, self._starts, axis=1)
        called = np.cumsum(drawn, axis=1)  # rows that a threshold at this score calls hallucinated
        hits = np.cumsum(hallucinated, axis=1)  # of these, rightly so
        positives, total = hits[:, -1], called[:, -1]
        has_both = (positives > 0) & (positives < total)

        # AUROC: of all pairs of a hallucinated and a faithful row, those in the right order; ties count half.
        faithful = drawn - hallucinated
        pairs = np.where(has_both, positives * (total - positives), np.nan)
        right_or_tied = _dot(faithful, hits)  # hallucinated rows that score at least as high as each faithful one
        tied = _dot(faithful, hallucinated)
        auroc = (right_or_tied - tied / 2) / pairs

        # Average precision: precision at each score, weighted by the recall gained there, without interpolation.
        precision = hits / np.maximum(called, 1.0)  # a resample may have drawn nothing so far
        return np.stack([auroc, _dot(hallucinated, precision) / np.where(has_both, positives, np.nan)])


def _dot(first: Values, second: Values) -> Values:
    return np.einsum("rt,rt->r", first, second)
