"""Fits baselines for a domain on other domains alone: settings, temperature and threshold too (nested).

For a left-out domain X every choice is made by leaving out a second one: for each other domain Y that X may learn from,
a setting is fitted without X and Y (and their kin) and scored on Y. The setting with the best mean AUROC over all Y is
taken; scores are calibrated (Platt 1999), and a threshold is found, on those of all Y; then it is fitted anew on all
domains but X and its kin. Every domain weighs the same in a fit, however many rows it has.

The threshold is where a response is as likely hallucinated as not when both classes of every Y count the same. The one
with the best macro-F1 on all their rows would say how much of the largest Y is hallucinated, and on X call nearly all
rows alike (EXPERIMENTS.md, a threshold that carries over).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.calibration.thresholds import apply_temperature, logit
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit_workflows.domains.recipes import Recipe, Values, fit, score

MIN_SLOPE = 0.01  # a smaller one would tie scores that differ


@dataclass(frozen=True, slots=True, eq=False)
class FitRows:
    """The rows of one domain that models of others may learn from.

    Args:
        features: [rows, features].
        gold: True where hallucinated [rows].
        kin: The domains whose models must not learn from these rows; the domain itself is one.
    """

    features: Values
    gold: NDArray[np.bool_]
    kin: frozenset[str]

    @property
    def has_both(self) -> bool:
        """Tells whether there are rows of both classes."""
        return bool(0 < self.gold.sum() < len(self.gold))


@dataclass(frozen=True, slots=True)
class Platt:
    """Calibrates scores by their log-odds: sigmoid(slope * log-odds + intercept).

    A temperature alone would not do: domains differ in how much of them is hallucinated, and of scores that are too
    high everywhere it can only make halves.
    """

    slope: float = 1.0
    intercept: float = 0.0

    @classmethod
    def fit(cls, scores: Values, gold: NDArray[np.bool_], weights: Values, domains: NDArray[np.intp]) -> "Platt":
        """Fits both on rows of both classes; an order that says nothing, or the wrong way round, is kept, but flat.

        Each domain has a bias of its own in the fit. With one for all, the slope would also say in which domains more
        is hallucinated, and scores that order each domain well could get a slope near 0, or below it.

        Args:
            domains: Numbers each row's domain from 0 [rows].
        """
        from sklearn.linear_model import LogisticRegression

        odds = logit(scores)
        biases = np.eye(int(domains.max()) + 1)[domains]
        model = LogisticRegression(C=1e3, max_iter=1000)
        model.fit(np.column_stack([odds, biases]), gold, weights * len(gold))
        slope = max(float(model.coef_[0, 0]), MIN_SLOPE)
        return cls(slope, intercept_of(slope * odds, gold, weights))

    def __call__(self, scores: Values) -> Values:
        return self.of_odds(logit(scores))

    def of_odds(self, odds: Any) -> Values:
        """Calibrates scores that are log-odds already."""
        return apply_temperature(self.slope * odds + self.intercept, 1.0)

    @property
    def undecided(self) -> float:
        """The log-odds of the score that is calibrated to 1/2."""
        return -self.intercept / self.slope


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A baseline fitted for one left-out domain.

    Args:
        trained_on: The domains that it learnt from.
        inner_auroc: Mean over these, each left out in its turn, of the setting that was chosen; NaN where there was no
            other domain to leave out.
    """

    recipe: Recipe
    model: Any
    setting: Mapping[str, Any]
    platt: Platt
    threshold: float
    trained_on: tuple[str, ...]
    num_rows: int
    inner_auroc: float

    def predictions(self, examples: Sequence[Example], features: Values) -> dict[str, Prediction]:
        """Predicts rows by their features [rows, features of the recipe]."""
        if not examples:
            return {}
        scores = self.platt(score(self.model, features))
        return {
            example.id: Prediction(
                id=example.id, label=HALLUCINATED if value >= self.threshold else FAITHFUL, score=float(value)
            )
            for example, value in zip(examples, scores, strict=True)
        }

    def to_dict(self) -> dict[str, Any]:
        """Gives what was chosen, for files."""
        inner = {} if np.isnan(self.inner_auroc) else {"inner_auroc": self.inner_auroc}
        platt = {"slope": self.platt.slope, "intercept": self.platt.intercept}
        chosen = {"setting": dict(self.setting), "platt": platt, "threshold": self.threshold}
        return {"trained_on": list(self.trained_on), "num_rows": self.num_rows, **chosen, **inner}


class Nested:
    """Fits recipes without the domains that are left out; a fit that two of them share is made once.

    Args:
        rows: The rows of each domain that may be learnt from.
        columns: The names of their features.
    """

    def __init__(self, rows: Mapping[str, FitRows], columns: Sequence[str]):
        self.rows = {name: own for name, own in rows.items() if own.has_both}
        self.columns = {name: place for place, name in enumerate(columns)}
        self._models: dict[tuple[str, int, tuple[str, ...]], Any] = {}

    def select(self, recipe: Recipe, features: Values) -> Values:
        """Takes the features that a recipe reads."""
        return features[:, [self.columns[name] for name in recipe.columns]]

    def domains_without(self, *left_out: str) -> tuple[str, ...]:
        """Names the domains that may be learnt from when these are left out: those that are kin of none of them."""
        return tuple(name for name, own in self.rows.items() if not own.kin & set(left_out))

    def fit(self, recipe: Recipe, left_out: str) -> Fitted | None:
        """Fits a recipe for a domain; None where no other domain may be learnt from."""
        trained_on = self.domains_without(left_out)
        if not trained_on:
            return None
        inner = [name for name in trained_on if self.domains_without(left_out, name)]
        scores: dict[int, dict[str, Values]] = {
            number: {name: self._score_left_out(recipe, number, left_out, name) for name in inner}
            for number in range(len(recipe.settings))
        }
        means = [
            float(np.mean([area(values, self.rows[name].gold) for name, values in own.items()])) if own else np.nan
            for own in scores.values()
        ]
        best = int(np.nanargmax(means)) if inner else 0
        pooled = [(scores[best][name], self.rows[name].gold) for name in inner]
        model = self._fit_on(recipe, best, trained_on)
        if not pooled:  # one domain to learn from: its own rows are all that there is to choose by
            own = [self.rows[name] for name in trained_on]
            pooled = [(score(model, self.select(recipe, rows.features)), rows.gold) for rows in own]
        values, gold = (np.concatenate(part) for part in zip(*pooled, strict=True))
        domains = np.repeat(np.arange(len(pooled)), [len(one) for _, one in pooled])
        platt, even = (
            Platt.fit(values, gold, np.concatenate([weights_of(one, balanced=way) for _, one in pooled]), domains)
            for way in (False, True)
        )
        return Fitted(
            recipe=recipe,
            model=model,
            setting=recipe.settings[best],
            platt=platt,
            threshold=float(platt.of_odds(even.undecided)),
            trained_on=trained_on,
            num_rows=sum(len(self.rows[name].gold) for name in trained_on),
            inner_auroc=means[best],
        )

    def _score_left_out(self, recipe: Recipe, number: int, left_out: str, inner: str) -> Values:
        """Scores the rows of an inner domain by a fit without it and the domain that is left out."""
        model = self._fit_on(recipe, number, self.domains_without(left_out, inner))
        return score(model, self.select(recipe, self.rows[inner].features))

    def _fit_on(self, recipe: Recipe, number: int, names: tuple[str, ...]) -> Any:
        key = (recipe.key, number, names)
        if key in self._models:
            return self._models[key]
        setting = recipe.settings[number]
        gold = np.concatenate([self.rows[name].gold for name in names])
        features = np.concatenate([self.select(recipe, self.rows[name].features) for name in names])
        weights = np.concatenate([weights_of(self.rows[name].gold, balanced=setting["balanced"]) for name in names])
        self._models[key] = fit(recipe.kind, setting, features, gold, weights * len(gold) / len(names))
        return self._models[key]


def intercept_of(odds: Values, gold: NDArray[np.bool_], weights: Values) -> float:
    """Finds the intercept with which the weighted mean of the probabilities is the share of hallucinated rows.

    A slope that was raised to its least, and biases that new domains do not have, would leave the mean elsewhere.

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


def weights_of(gold: NDArray[np.bool_], *, balanced: bool) -> Values:
    """Gives rows weights that add up to 1; with `balanced` each class has half of it."""
    if not balanced:
        return np.full(len(gold), 1 / len(gold))
    size = np.where(gold, gold.sum(), (~gold).sum())
    return 0.5 / size


def area(scores: Values, gold: NDArray[np.bool_]) -> float:
    """Computes the AUROC of scores."""
    from faithkit.metrics.ranking import Ranking
    from faithkit.statistics.bootstrap import Groups

    groups = Groups.of(map(str, range(len(gold))))
    return float(Ranking(scores, gold, groups)(np.ones((1, groups.count)))["auroc"][0])
