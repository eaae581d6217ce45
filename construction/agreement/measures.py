"""Measures agreement on labels and ratings: Cohen's, Fleiss' and Randolph's kappa, and Krippendorff's alpha.

All are 1 - (observed disagreement) / (disagreement by chance), and differ in their definition of chance:

    cohen_kappa          two annotators, each with separate shares; for more, the mean over all pairs (Cohen 1960)
    fleiss_kappa         any number, with common shares (Fleiss 1971)
    randolph_kappa       the same, with equal shares of all categories (Randolph 2005)
    alpha, alpha_ordinal any number, missing ratings allowed, corrected for few items (Krippendorff 2004)

DiaHalu cites Randolph 2005 and prints the formula of Fleiss' kappa for two categories; both are computed. They need the
same number of ratings for every item: items with another number than most are left out and counted. Alpha uses every
item with two or more ratings. If all ratings are equal, none is defined.

Values come from scikit-learn, statsmodels and krippendorff. Intervals use the same formulas over weighted sums, since a
bootstrap evaluates them a thousand times.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from construction.agreement.answers import MISSING, Ratings
from faithkit.errors import UserError
from faithkit.metrics.judging import cohen_kappa
from faithkit.statistics.bootstrap import Groups, ScoredMetrics, bootstrap
from faithkit.statistics.metric import CORRELATION, PROPORTION, Metric
from faithkit.statistics.spread import Statistic, Values

OBSERVED = "agreement"
KAPPAS = ("fleiss_kappa", "randolph_kappa")


def library(name: str) -> Any:
    """Imports one of the libraries of the extra `construction`.

    Raises:
        UserError: It is not installed.
    """
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        problem = f"measuring agreement needs {package}, which is not installed"
        raise UserError(problem, hint="pip install 'faithkit[construction]'") from error


def measure(ratings: Ratings, *, ordinal: bool = False, num_resamples: int = 1000) -> ScoredMetrics:
    """Computes every measure of one question with its interval over groups; `n` counts its items."""
    metrics: dict[str, Metric] = {}
    notes: list[str] = []
    rated = (ratings.values != MISSING).sum(axis=1)
    if not (rated >= 2).any():
        return ScoredMetrics(metrics={}, notes=("no item has two ratings: there is no agreement to measure",))
    several = ratings.only(rated >= 2)
    parts: list[tuple[Statistic, Ratings, Mapping[str, float]]] = [
        (_pairs(several), several, _library_cohen(several)),
        (_alphas(several, ordinal), several, _library_alpha(several, ordinal)),
    ]
    sizes, often = np.unique(rated[rated >= 2], return_counts=True)
    usual = int(sizes[often.argmax()])
    even = ratings.only(rated == usual)
    parts.append((_fleiss(even), even, _library_fleiss(even)))
    if len(sizes) > 1:
        others = len(several.groups) - len(even.groups)
        notes.append(f"kappas of Fleiss and Randolph leave out {others:,} items that have not {usual} ratings")
    if alone := int((rated == 1).sum()):
        notes.append(f"{alone:,} items have a single rating and count nowhere")
    for statistic, items, values in parts:
        groups = Groups.of(items.groups)
        kinds = dict.fromkeys(statistic(np.ones((1, groups.count))), CORRELATION) | {OBSERVED: PROPORTION}
        found = bootstrap(groups, statistic, kinds=kinds, num_resamples=num_resamples)
        metrics |= {name: _with_value(metric, values.get(name)) for name, metric in found.metrics.items()}
        notes += [note for note in found.notes if note not in notes]
    return ScoredMetrics(metrics=metrics, notes=tuple(notes))


def _with_value(metric: Metric, value: float | None) -> Metric:
    """Replaces the value by that of the library."""
    if value is None:
        return metric
    assert abs(metric.value - value) < 1e-6, f"the library computes {value}, the weighted sums {metric.value}"
    return replace(metric, value=value)


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


def _library_cohen(ratings: Ratings) -> dict[str, float]:
    kappas = pair_kappas(ratings)
    return {"cohen_kappa": float(np.mean(list(kappas.values())))} if kappas else {}


def _library_fleiss(ratings: Ratings) -> dict[str, float]:
    inter_rater = library("statsmodels.stats.inter_rater")
    counts = ratings.counts()
    if counts.shape[1] < 2:
        return {}
    with np.errstate(invalid="ignore"):  # undefined: 0 / 0
        values = {name: inter_rater.fleiss_kappa(counts, method=name.partition("_")[0]) for name in KAPPAS}
    return {name: float(value) for name, value in values.items() if np.isfinite(value)}


def _library_alpha(ratings: Ratings, ordinal: bool) -> dict[str, float]:
    krippendorff = library("krippendorff")
    counts = ratings.counts()
    if counts.shape[1] < 2:
        return {}
    levels = {"alpha": "nominal"} | ({"alpha_ordinal": "ordinal"} if ordinal else {})
    options = {"value_counts": counts.astype(int), "value_domain": np.arange(counts.shape[1])}
    with np.errstate(invalid="ignore"):
        values = {name: krippendorff.alpha(**options, level_of_measurement=level) for name, level in levels.items()}
    return {name: float(value) for name, value in values.items() if np.isfinite(value)}
