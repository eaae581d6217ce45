"""Recipes of the cheap baselines: the features that each reads, what is fitted, and the settings to choose from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.baselines.counted_features import FEATURES, WORD_EVIDENCE, Values, compress_counts

GRAMS, COSINE, NLI = "unknown 4-grams", "cosine", "not entailed"
REGRESSION, TREES = "regression", "trees"
# Settings of each kind; which is best is chosen on domains that are left out as the tested one is.
SETTINGS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    REGRESSION: [{"C": c, "balanced": balanced} for c in (0.01, 0.1, 1.0) for balanced in (False, True)],
    TREES: [{"leaves": leaves, "balanced": balanced} for leaves in (4, 12) for balanced in (False, True)],
}
PLAIN: Sequence[Mapping[str, Any]] = ({"C": 1.0, "balanced": False},)  # of one feature: its direction is all there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A baseline that is fitted on labelled rows.

    Args:
        key: Begins the names of its metrics.
        name: As tables name it.
        columns: The features that it reads, by name.
        settings: What may be chosen.
    """

    key: str
    name: str
    kind: str
    columns: tuple[str, ...]
    settings: Sequence[Mapping[str, Any]] = field(default=PLAIN)


def recipes_of(columns: Sequence[str]) -> list[Recipe]:
    """Gives the recipes that the features at hand allow, the plainest first.

    Args:
        columns: Names of the features: `FEATURES` and `GRAMS`, and `COSINE` and `NLI` where a model gave them.
    """
    extra = tuple(name for name in (COSINE, NLI) if name in columns)
    everything = (*WORD_EVIDENCE, *extra)
    plain = [
        ("overlap", "word overlap", ("unknown share",)),
        ("grams", "4-grams of characters", (GRAMS,)),
        ("mismatch", "numbers and names", ("unknown numbers", "unknown names")),
        ("length", "length", ("response words",)),
        *([("cosine", "encoder cosine", (COSINE,))] if COSINE in columns else []),
        *([("nli", "NLI alone", (NLI,))] if NLI in columns else []),
    ]
    found = [Recipe(key=key, name=name, kind=REGRESSION, columns=own) for key, name, own in plain]
    learners = [
        ("word_regression", "regression, 8 words", REGRESSION, WORD_EVIDENCE),
        ("word_trees", "trees, 8 words", TREES, WORD_EVIDENCE),
        *([("regression", "regression, all", REGRESSION, everything)] if extra else []),
        *([("trees", "trees, all", TREES, everything)] if extra else []),
        ("counted", "trees, 40 counts", TREES, FEATURES),
    ]
    found += [
        Recipe(key=key, name=name, kind=kind, columns=tuple(own), settings=SETTINGS[kind])
        for key, name, kind, own in learners
    ]
    return found


def fit(kind: str, setting: Mapping[str, Any], features: Values, gold: NDArray[np.bool_], weights: Values) -> Any:
    """Fits a recipe's classifier by one setting; scikit-learn is imported here, which no start of a script waits for.

    Args:
        features: [rows, features].
        gold: True where hallucinated [rows].
        weights: What each row counts [rows].
    """
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

    shape = FunctionTransformer(compress_counts)
    model = make_pipeline(shape, StandardScaler(), LogisticRegression(C=setting["C"], max_iter=1000))
    own = {"standardscaler__sample_weight": weights, "logisticregression__sample_weight": weights}
    return model.fit(features, gold, **own)


def score(model: Any, features: Values) -> Values:
    """Gives P(hallucinated) of each row [rows]."""
    found: Values = model.predict_proba(features)[:, 1]
    return found
