"""Distinct-n: different n-grams / all n-grams, over all responses together (Li et al. 2016).

Use it to see a system fall back on a few phrases. It falls with the number and length of responses, so compare only
systems on the same examples; random words score highest.
"""

from collections.abc import Sequence

import numpy as np

from faithkit.metrics.classification import share
from faithkit.metrics.responses.ngrams import Grams, grams
from faithkit.statistics.intervals import Groups, Statistic, Values
from faithkit.words import apostrophe_words


def distinct(groups: Groups, responses: Sequence[str], max_order: int = 2) -> Statistic:
    """Gives `distinct_1`, ..., as a function of weights over groups.

    A group that is drawn twice brings no new n-grams, so a resample of whole groups would always have fewer than the
    data. Resamples are therefore scored to first order: a group's weight changes the number of different n-grams by
    those that no other group has (the jackknife's influence; Efron & Tibshirani 1993, ch. 11).
    """
    orders = [_counts(groups, found) for found in grams(list(map(apostrophe_words, responses)), max_order)]

    def statistic(weights: Values) -> dict[str, Values]:
        values = {}
        for order, (kinds, own, totals) in enumerate(orders, start=1):
            different = kinds + (weights - 1) @ own
            values[f"distinct_{order}"] = share(different, weights @ totals)
        return values

    return statistic


def _counts(groups: Groups, found: Grams) -> tuple[int, Values, Values]:
    """Counts the different n-grams of all, and for each group [G] those that it alone has and all that it has."""
    group, kinds = groups.index[found.row], max(1, found.kinds)
    holder, held = np.divmod(np.unique(group * kinds + found.gram), kinds)
    alone = np.bincount(held, minlength=kinds)[held] == 1
    own = np.bincount(holder[alone], minlength=groups.count).astype(np.float64)
    return found.kinds, own, np.bincount(group, minlength=groups.count).astype(np.float64)
