"""Measures agreement on labels and ratings: Cohen's, Fleiss' and Randolph's kappa, and Krippendorff's alpha.

All are 1 - (observed disagreement) / (disagreement by chance), and differ in their definition of chance:

    cohen_kappa          two annotators, each with separate shares; for more, the mean over all pairs (Cohen 1960)
    fleiss_kappa         any number, with common shares (Fleiss 1971)
    randolph_kappa       the same, with equal shares of all categories (Randolph 2005)
    alpha, alpha_ordinal any number, missing ratings allowed, corrected for few items (Krippendorff 2004)

DiaHalu cites Randolph 2005 and prints the formula of Fleiss' kappa for two categories; both are computed. They need the
same number of ratings for every item: items with another number than most are left out and counted. Alpha uses every
item with two or more ratings. If all ratings are equal, none is defined.

All are computed from weighted sums over groups, since a bootstrap evaluates them a thousand times. The tests compare
the values with those of statsmodels and krippendorff.
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from construction.agreement.answers import MISSING, Ratings
from faithkit.metrics.judging import cohen_kappa
from faithkit.statistics.bootstrap import Groups, ScoredMetrics, bootstrap
from faithkit.statistics.metric import CORRELATION, PROPORTION, Metric
from faithkit.statistics.spread import Statistic, Values

OBSERVED = "agreement"


def measure(ratings: Ratings, *, ordinal: bool = False, num_resamples: int = 1000) -> ScoredMetrics:
    """Computes every measure of one question with its interval over groups; `n` counts its items."""
    metrics: dict[str, Metric] = {}
    notes: list[str] = []
    rated = (ratings.values != MISSING).sum(axis=1)
    if not (rated >= 2).any():
        return ScoredMetrics(metrics={}, notes=("no item has two ratings: there is no agreement to measure",))
    several = ratings.only(rated >= 2)
    parts = [(_pairs(several), several), (_alphas(several, ordinal), several)]
    sizes, often = np.unique(rated[rated >= 2], return_counts=True)
    usual = int(sizes[often.argmax()])
    even = ratings.only(rated == usual)
    parts.append((_fleiss(even), even))
    if len(sizes) > 1:
        others = len(several.groups) - len(even.groups)
        notes.append(f"kappas of Fleiss and Randolph leave out {others:,} items that have not {usual} ratings")
    if alone := int((rated == 1).sum()):
        notes.append(f"{alone:,} items have a single rating and count nowhere")
    for statistic, items in parts:
        groups = Groups.of(items.groups)
        kinds = dict.fromkeys(statistic(np.ones((1, groups.count))), CORRELATION) | {OBSERVED: PROPORTION}
        found = bootstrap(groups, statistic, kinds=kinds, num_resamples=num_resamples)
        metrics |= found.metrics
        notes += [note for note in found.notes if note not in notes]
    return ScoredMetrics(metrics=metrics, notes=tuple(notes))


def _pairs(ratings: Ratings) -> Statistic:
    """Averages agreement and Cohen's kappa over pairs of annotators; pairs without a kappa are left out."""
    groups, size = Groups.of(ratings.groups), len(ratings.categories)
    sums = []
    for first, second in _pairs_of(ratings):
        both = (first != MISSING) & (second != MISSING)
        cells = (groups.index * size + first) * size + second
        tables = np.bincount(cells[both], minlength=groups.count * size * size)
        sums.append(tables.reshape(groups.count, -1).astype(np.float64))

    def statistic(weights: Values) -> dict[str, Values]:
        tables = np.stack([(weights @ table).reshape(-1, size, size) for table in sums], axis=1)  # [R, pairs, K, K]
        observed, kappa = cohen_kappa(tables)
        return {OBSERVED: _mean(observed), "cohen_kappa": _mean(kappa)}

    return statistic


def _pairs_of(ratings: Ratings) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    columns = ratings.values.T
    pairs = [(first, second) for first, second in combinations(columns, 2)]
    return [(a, b) for a, b in pairs if ((a != MISSING) & (b != MISSING)).any()]


def _mean(values: Values) -> Values:
    defined = np.isfinite(values)
    count = defined.sum(axis=1)
    return np.where(count > 0, np.where(defined, values, 0).sum(axis=1) / np.maximum(count, 1), np.nan)


def _fleiss(ratings: Ratings) -> Statistic:
    counts = ratings.counts()
    raters = counts.sum(axis=1)  # the same for every item
    agreeing = (counts * (counts - 1)).sum(axis=1) / (raters * (raters - 1))
    groups = Groups.of(ratings.groups)
    sums = groups.sums(np.column_stack([agreeing, np.ones(len(counts)), counts]))

    def statistic(weights: Values) -> dict[str, Values]:
        agreed, items, *chosen = (weights @ sums).T
        shares = np.stack(chosen, axis=1)
        shares = shares / shares.sum(axis=1, keepdims=True)
        observed = agreed / items
        return {
            "fleiss_kappa": _beyond(observed, (shares**2).sum(axis=1)),
            "randolph_kappa": _beyond(observed, np.full_like(observed, 1 / len(ratings.categories))),
        }

    return statistic


def _beyond(observed: Values, by_chance: Values) -> Values:
    room = 1 - by_chance
    return np.where(room > 1e-12, (observed - by_chance) / np.where(room > 1e-12, room, 1), np.nan)


def _alphas(ratings: Ratings, ordinal: bool) -> Statistic:
    counts = ratings.counts()
    size = len(ratings.categories)
    pairs = counts[:, :, None] * counts[:, None, :] - np.eye(size) * counts[:, None, :]
    coincidences = pairs / (counts.sum(axis=1) - 1)[:, None, None]
    sums = Groups.of(ratings.groups).sums(coincidences.reshape(len(counts), -1))

    def statistic(weights: Values) -> dict[str, Values]:
        observed = (weights @ sums).reshape(-1, size, size)
        found = {"alpha": alpha(observed, 1 - np.eye(size))}
        if ordinal:
            found["alpha_ordinal"] = alpha(observed, _ordinal_distances(observed.sum(axis=2)))
        return found

    return statistic


def alpha(coincidences: Values, distances: Values) -> Values:
    """Computes Krippendorff's alpha of coincidence matrices [R, K, K]: 1 - (n - 1) sum(o d) / sum(n_c n_k d)."""
    totals = coincidences.sum(axis=2)
    n = totals.sum(axis=1)
    disagreed = (coincidences * distances).sum(axis=(1, 2))
    by_chance = (totals[:, :, None] * totals[:, None, :] * distances).sum(axis=(1, 2))
    defined = by_chance > 1e-12
    return np.where(defined, 1 - (n - 1) * disagreed / np.where(defined, by_chance, 1), np.nan)


def _ordinal_distances(totals: Values) -> Values:
    """Computes the squared number of ratings between the middles of two categories: [R, K, K]."""
    middles = np.cumsum(totals, axis=1) - totals / 2
    return (middles[:, :, None] - middles[:, None, :]) ** 2


def pair_kappas(ratings: Ratings) -> dict[str, float]:
    """Computes Cohen's kappa of each pair of annotators, `one ~ other`; pairs without a kappa are left out."""
    from sklearn.metrics import cohen_kappa_score

    found = {}
    for (one, first), (other, second) in combinations(zip(ratings.annotators, ratings.values.T, strict=True), 2):
        both = (first != MISSING) & (second != MISSING)
        if len({*first[both], *second[both]}) > 1:  # else undefined
            found[f"{one} ~ {other}"] = float(cohen_kappa_score(first[both], second[both]))
    return found
