"""Fits cheap baselines for a domain on the other domains: settings, calibration and threshold too (nested).

For a left-out domain X every choice is made by leaving out a second one. For each other domain Y that X may learn from,
a setting is fitted without X, Y and their related domains, and scored on Y. The setting with the best mean AUROC over
all Y is taken; its scores of all Y are calibrated (Platt 1999) and give the threshold. The baseline is then fitted on
all domains except X and those related to it. Every domain has the same weight in a fit, however many rows it has.

The threshold is the score where a response is as likely hallucinated as not if both classes of every Y count the same.
The threshold with the best macro-F1 on all their rows would follow the class shares of the largest Y, and would call
nearly all rows of X alike (EXPERIMENTS.md, Domain transfer: thresholds).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.reading.exclude import Excluded
from faithkit.baselines.counted_features import FEATURES, WORD_EVIDENCE, Values, compress_counts
from faithkit.baselines.simple_detectors import Baseline
from faithkit.calibration.thresholds import apply_temperature, logit, predict_by_threshold
from faithkit.metrics.classification import Ranking
from faithkit.records import HALLUCINATED, Example
from faithkit.statistics.bootstrap import Groups
from faithkit_workflows.domains.domain_rows import DomainRows, Rows
from faithkit_workflows.domains.features import COSINE, GRAMS, NLI, Features

MIN_SLOPE = 0.01  # a smaller one would make different scores equal
REGRESSION, TREES = "regression", "trees"
# Settings of each kind; the best one is chosen on domains that are left out as the tested one is.
SETTINGS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    REGRESSION: [{"C": c, "balanced": balanced} for c in (0.01, 0.1, 1.0) for balanced in (False, True)],
    TREES: [{"leaves": leaves, "balanced": balanced} for leaves in (4, 12) for balanced in (False, True)],
}
ONE_SETTING: Sequence[Mapping[str, Any]] = ({"C": 1.0, "balanced": False},)  # a single feature has only a direction
CHOSEN, CHOSEN_INSIDE = "chosen", "chosen inside"  # the baseline that is best on the domains that it may learn from
Marks = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Describes a baseline that is fitted on labelled rows.

    Args:
        key: The first part of its metrics' names.
        name: Its name in tables.
        columns: The names of the features that it reads.
        settings: The settings to choose from.
    """

    key: str
    name: str
    kind: str
    columns: tuple[str, ...]
    settings: Sequence[Mapping[str, Any]] = field(default=ONE_SETTING)


def list_recipes(columns: Sequence[str]) -> list[Recipe]:
    """Lists the recipes that the available features allow, the simplest first.

    Args:
        columns: Names of the features: `FEATURES` and `GRAMS`, and `COSINE` and `NLI` where a model computed them.
    """
    of_models = tuple(name for name in (COSINE, NLI) if name in columns)
    everything = (*WORD_EVIDENCE, *of_models)
    simple = {
        "overlap": ("word overlap", ("unknown share",)),
        "grams": ("4-grams of characters", (GRAMS,)),
        "mismatch": ("numbers and names", ("unknown numbers", "unknown names")),
        "length": ("length", ("response words",)),
        "cosine": ("encoder cosine", (COSINE,)),
        "nli": ("NLI alone", (NLI,)),
    }
    learned = {
        "word_regression": ("regression, 8 words", REGRESSION, WORD_EVIDENCE),
        "word_trees": ("trees, 8 words", TREES, WORD_EVIDENCE),
        "regression": ("regression, all", REGRESSION, everything),
        "trees": ("trees, all", TREES, everything),
        "counted": ("trees, 40 counts", TREES, FEATURES),
    }
    of_models_alone = () if of_models else ("regression", "trees")
    absent = {name for name in (COSINE, NLI) if name not in columns}
    return [
        Recipe(key=key, name=name, kind=REGRESSION, columns=read)
        for key, (name, read) in simple.items()
        if not absent & set(read)
    ] + [
        Recipe(key=key, name=name, kind=kind, columns=read, settings=SETTINGS[kind])
        for key, (name, kind, read) in learned.items()
        if key not in of_models_alone
    ]


def fit_classifier(kind: str, setting: Mapping[str, Any], features: Values, gold: Marks, weights: Values) -> Any:
    """Fits a classifier of a recipe.

    Args:
        features: [rows, features].
        gold: True where hallucinated [rows].
        weights: [rows].
    """
    # scikit-learn is imported here because it would slow down the start of every command.
    if kind == TREES:
        from sklearn.ensemble import HistGradientBoostingClassifier

        trees = HistGradientBoostingClassifier(
            learning_rate=0.06, max_iter=120, max_leaf_nodes=setting["leaves"], min_samples_leaf=20,
            l2_regularization=1.0, early_stopping=False, random_state=0,
        )  # fmt: skip
        return trees.fit(features, gold, sample_weight=weights)
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    regression = LogisticRegression(C=setting["C"], max_iter=1000)
    model = make_pipeline(FunctionTransformer(compress_counts), StandardScaler(), regression)
    sample_weights = {"standardscaler__sample_weight": weights, "logisticregression__sample_weight": weights}
    return model.fit(features, gold, **sample_weights)


def predict_scores(model: Any, features: Values) -> Values:
    """Computes P(hallucinated) of each row [rows]."""
    scores: Values = model.predict_proba(features)[:, 1]
    return scores


@dataclass(frozen=True, slots=True, eq=False)
class FitRows:
    """The rows of one domain that models of other domains may learn from.

    Args:
        features: [rows, features].
        gold: True where hallucinated [rows].
        related_domains: The domains whose models must not learn from these rows, the domain itself among them.
    """

    features: Values
    gold: Marks
    related_domains: frozenset[str]

    @property
    def has_both_classes(self) -> bool:
        """Reports whether there are rows of both classes."""
        return bool(0 < self.gold.sum() < len(self.gold))


@dataclass(frozen=True, slots=True)
class Platt:
    """Calibrates scores by their log-odds: sigmoid(slope * log-odds + intercept).

    A temperature alone is not enough: domains differ in their share of hallucinated rows, and a temperature can only
    move scores that are too high everywhere towards 1/2.
    """

    slope: float = 1.0
    intercept: float = 0.0

    @classmethod
    def fit(cls, scores: Values, gold: Marks, weights: Values, domains: NDArray[np.intp]) -> "Platt":
        """Fits slope and intercept on rows of both classes; the order of the scores is always kept.

        Each domain has its bias in the fit. With one bias for all, the slope would also express which domains have more
        hallucinated rows, and scores that order each domain well could get a slope near 0, or below it.

        Args:
            domains: The number of each row's domain, from 0 [rows].
        """
        from sklearn.linear_model import LogisticRegression

        odds = logit(scores)
        biases = np.eye(int(domains.max()) + 1)[domains]
        model = LogisticRegression(C=1e3, max_iter=1000)
        model.fit(np.column_stack([odds, biases]), gold, weights * len(gold))
        slope = max(float(model.coef_[0, 0]), MIN_SLOPE)
        return cls(slope, find_intercept(slope * odds, gold, weights))

    def __call__(self, scores: Values) -> Values:
        return self.calibrate_odds(logit(scores))

    def calibrate_odds(self, odds: Any) -> Values:
        """Calibrates scores that are log-odds already."""
        return apply_temperature(self.slope * odds + self.intercept, 1.0)


def find_intercept(odds: Values, gold: Marks, weights: Values) -> float:
    """Finds the intercept that makes the weighted mean of the probabilities the share of hallucinated rows.

    The fitted intercept does not: the slope may have been raised to its minimum, and new domains have no bias.

    Args:
        odds: Log-odds of rows of both classes, slope included [rows].
    """
    from scipy.optimize import brentq

    share = float(np.average(gold, weights=weights))
    middle = float(logit(share))

    def excess(intercept: float) -> float:
        return float(np.average(apply_temperature(odds + intercept, 1.0), weights=weights)) - share

    # At the ends every row is below the share, or every row above it; the mean rises in between.
    return float(brentq(excess, middle - odds.max() - 1, middle - odds.min() + 1, xtol=1e-12))


def row_weights(gold: Marks, *, balanced: bool) -> Values:
    """Computes weights of rows that add up to 1; with `balanced` each class has half of it."""
    if not balanced:
        return np.full(len(gold), 1 / len(gold))
    return 0.5 / np.where(gold, gold.sum(), (~gold).sum())


def compute_auroc(scores: Values, gold: Marks) -> float:
    """Computes the AUROC of scores."""
    groups = Groups.of(map(str, range(len(gold))))
    return float(Ranking(scores, gold, groups)(np.ones((1, groups.count)))["auroc"][0])


@dataclass(frozen=True, slots=True, eq=False)
class FittedRecipe:
    """A baseline that was fitted for one left-out domain.

    Args:
        trained_on: The domains that it was trained on.
        inner_auroc: The chosen setting's mean over these domains, each left out in turn; NaN where there was no
            second domain to leave out.
    """

    recipe: Recipe
    model: Any
    setting: Mapping[str, Any]
    platt: Platt
    threshold: float
    trained_on: tuple[str, ...]
    num_rows: int
    inner_auroc: float

    def predict(self, examples: Sequence[Example], features: Values) -> Baseline:
        """Predicts rows by their features [rows, features of the recipe]."""
        scores = self.platt(predict_scores(self.model, features)) if examples else ()
        return Baseline(
            key=self.recipe.key,
            name=self.recipe.name,
            predictions=predict_by_threshold((example.id for example in examples), scores, self.threshold),
            fitted_on=f"{self.num_rows:,} rows of {', '.join(self.trained_on)}",
            facts=self.to_dict(),
        )

    def to_dict(self) -> dict[str, Any]:
        """Converts what was chosen to plain values, for metrics.json."""
        inner = {} if np.isnan(self.inner_auroc) else {"inner_auroc": self.inner_auroc}
        platt = {"slope": self.platt.slope, "intercept": self.platt.intercept}
        chosen = {"setting": dict(self.setting), "platt": platt, "threshold": self.threshold}
        return {"trained_on": list(self.trained_on), "num_rows": self.num_rows, **chosen, **inner}


class LeaveOneOut:
    """Fits recipes without left-out domains; a fit that two of these share is computed once.

    Args:
        rows: The training rows of each domain.
        columns: The names of their features.
    """

    def __init__(self, rows: Mapping[str, FitRows], columns: Sequence[str]):
        self.rows = {name: domain for name, domain in rows.items() if domain.has_both_classes}
        self.columns = {name: place for place, name in enumerate(columns)}
        self._models: dict[tuple[str, int, tuple[str, ...]], Any] = {}

    def select_features(self, recipe: Recipe, features: Values) -> Values:
        """Selects the features that a recipe reads."""
        return features[:, [self.columns[name] for name in recipe.columns]]

    def domains_without(self, *left_out: str) -> tuple[str, ...]:
        """Lists the domains that are related to none of the left-out ones."""
        return tuple(name for name, domain in self.rows.items() if not domain.related_domains & set(left_out))

    def fit(self, recipe: Recipe, left_out: str) -> FittedRecipe | None:
        """Fits a recipe for a domain; None if there is no other domain to learn from."""
        trained_on = self.domains_without(left_out)
        if not trained_on:
            return None
        inner = [name for name in trained_on if self.domains_without(left_out, name)]
        scores = [
            {name: self._score_left_out(recipe, number, left_out, name) for name in inner}
            for number in range(len(recipe.settings))
        ]
        means = [
            float(np.mean([compute_auroc(values, self.rows[name].gold) for name, values in of_setting.items()]))
            if of_setting
            else np.nan
            for of_setting in scores
        ]
        best = int(np.nanargmax(means)) if inner else 0
        pooled = [(scores[best][name], self.rows[name].gold) for name in inner]
        model = self._fit_on(recipe, best, trained_on)
        if not pooled:  # a single training domain: its rows are all that the threshold can be chosen by
            pooled = [
                (predict_scores(model, self.select_features(recipe, self.rows[name].features)), self.rows[name].gold)
                for name in trained_on
            ]
        values, gold = (np.concatenate(part) for part in zip(*pooled, strict=True))
        domains = np.repeat(np.arange(len(pooled)), [len(labels) for _, labels in pooled])
        platt, balanced = (
            Platt.fit(
                values, gold, np.concatenate([row_weights(labels, balanced=way) for _, labels in pooled]), domains
            )
            for way in (False, True)
        )
        return FittedRecipe(
            recipe=recipe,
            model=model,
            setting=recipe.settings[best],
            platt=platt,
            threshold=float(platt.calibrate_odds(-balanced.intercept / balanced.slope)),
            trained_on=trained_on,
            num_rows=sum(len(self.rows[name].gold) for name in trained_on),
            inner_auroc=means[best],
        )

    def _score_left_out(self, recipe: Recipe, number: int, left_out: str, inner: str) -> Values:
        """Scores the rows of an inner domain by a fit without it and the left-out domain."""
        model = self._fit_on(recipe, number, self.domains_without(left_out, inner))
        return predict_scores(model, self.select_features(recipe, self.rows[inner].features))

    def _fit_on(self, recipe: Recipe, number: int, names: tuple[str, ...]) -> Any:
        key = (recipe.key, number, names)
        if key not in self._models:
            setting, rows = recipe.settings[number], [self.rows[name] for name in names]
            gold = np.concatenate([domain.gold for domain in rows])
            features = np.concatenate([self.select_features(recipe, domain.features) for domain in rows])
            weights = np.concatenate([row_weights(domain.gold, balanced=setting["balanced"]) for domain in rows])
            self._models[key] = fit_classifier(recipe.kind, setting, features, gold, weights * len(gold) / len(names))
        return self._models[key]


class DomainBaselines:
    """Fits baselines for each domain on the unrelated domains.

    Args:
        domains: The rows of all domains.
        features: Computes the features.
        nli: An NLI model; a domain may name another one.
        max_fit_rows: The largest number of training rows of each domain.
    """

    def __init__(
        self, domains: Mapping[str, DomainRows], features: Features, *, nli: str | None, max_fit_rows: int | None
    ):
        self.domains, self.features, self.nli = domains, features, nli
        self.fit_rows = {name: rows.limit(max_fit_rows) for name, rows in select_training_rows(domains).items()}
        self._fits: dict[str | None, LeaveOneOut] = {}

    def find_nli(self, name: str) -> str | None:
        """Finds the NLI model of a domain; None if the benchmark has none."""
        return self.nli and (self.domains[name].domain.nli or self.nli)

    def _fits_with(self, nli: str | None) -> LeaveOneOut:
        """Prepares the fits of the domains with one NLI model, which share their parts."""
        if nli not in self._fits:
            rows = {
                name: FitRows(
                    features=self.features.compute(f"{name}-fit", fit_rows.inputs, nli),
                    gold=np.array([example.label == HALLUCINATED for example in fit_rows.inputs], bool),
                    related_domains=self.domains[name].domain.related_domains,
                )
                for name, fit_rows in self.fit_rows.items()
            }
            self._fits[nli] = LeaveOneOut(rows, self.features.columns(nli=nli is not None))
        return self._fits[nli]

    def fit(self, name: str, examples: Sequence[Example], part: str) -> list[Baseline]:
        """Fits every recipe for a domain and predicts its examples; empty where it has no domain to learn from.

        Args:
            part: The part of the domain that the examples are, for file names.
        """
        nli = self.find_nli(name)
        fits = self._fits_with(nli)
        features = self.features.compute(f"{name}-{part}", examples, nli)
        fitted = [fits.fit(recipe, name) for recipe in list_recipes(self.features.columns(nli=nli is not None))]
        found = [one.predict(examples, fits.select_features(one.recipe, features)) for one in fitted if one is not None]
        if ranked := [one for one in found if "inner_auroc" in one.facts]:
            best = max(ranked, key=lambda one: one.facts["inner_auroc"])
            where = f"the same, and it is {best.name}"
            found.append(replace(best, key=CHOSEN, name=CHOSEN_INSIDE, fitted_on=where))
        return found


def select_training_rows(domains: Mapping[str, DomainRows]) -> dict[str, Rows]:
    """Selects the rows that models of other domains learn from, without those whose texts another domain tests.

    Extra domains are left out, because their rows are rows of other domains too.
    """
    selected = {}
    for name, domain_rows in domains.items():
        if domain_rows.domain.extra:
            continue
        others = [other for key, other in domains.items() if key not in domain_rows.domain.related_domains]
        excluded = Excluded.of([row for other in others for half in other.halves.values() for row in half.originals])
        rows = domain_rows.training_rows()
        selected[name] = rows.take([i for i, row in enumerate(rows.originals) if not excluded.covers(row)])
    return selected
