"""Fits cheap baselines for a domain on the other domains: logistic regressions on counts, or on a model's score.

A baseline of a domain is fitted on all domains except that domain and those related to it. Every domain, and in it each
class, has the same weight, however many rows it has. So the threshold of 0.5 is the score where a response is as likely
hallucinated as not if both classes count the same. The threshold with the best macro-F1 on all rows would follow the
class shares of the largest domain, and would call nearly all rows of another one alike
(research/experiments/domains.md, Domain transfer: thresholds).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.reading.exclude import Excluded
from faithkit.baselines.counted_features import WORD_EVIDENCE, Values, compress_counts
from faithkit.baselines.simple_detectors import Baseline
from faithkit.calibration.thresholds import predict_by_threshold
from faithkit.records import HALLUCINATED, Example
from faithkit_workflows.domains.domain_rows import DomainRows, Rows
from faithkit_workflows.domains.features import COSINE, GRAMS, NLI, Features

THRESHOLD = 0.5
# By key: the name in tables, and the features that are read; those of models only where there is one.
RECIPES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "overlap": ("word overlap", ("unknown share",)),
    "grams": ("4-grams of characters", (GRAMS,)),
    "mismatch": ("numbers and names", ("unknown numbers", "unknown names")),
    "length": ("length", ("response words",)),
    "cosine": ("encoder cosine", (COSINE,)),
    "nli": ("NLI alone", (NLI,)),
    "regression": ("regression", (*WORD_EVIDENCE, COSINE, NLI)),
}


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

    def find_nli(self, name: str) -> str | None:
        """Finds the NLI model of a domain; None if the benchmark has none."""
        return self.nli and (self.domains[name].domain.nli or self.nli)

    def fit(self, name: str, examples: Sequence[Example], part: str) -> list[Baseline]:
        """Fits every baseline for a domain and predicts its examples; empty where it has no domain to learn from.

        Args:
            part: The part of the domain that the examples are, for file names.
        """
        nli = self.find_nli(name)
        columns = self.features.columns(nli=nli is not None)
        rows: dict[str, tuple[Values, NDArray[np.bool_]]] = {}
        for other, fit_rows in self.fit_rows.items():
            gold = np.array([example.label == HALLUCINATED for example in fit_rows.inputs], bool)
            if name not in self.domains[other].domain.related_domains and 0 < gold.sum() < len(gold):
                rows[other] = self.features.compute(f"{other}-fit", fit_rows.inputs, nli), gold
        if not rows:
            return []
        of_domain = self.features.compute(f"{name}-{part}", examples, nli)
        fitted_on = f"{sum(len(gold) for _, gold in rows.values()):,} rows of {', '.join(rows)}"
        found = []
        for key, (title, wanted) in RECIPES.items():
            read = [columns.index(column) for column in wanted if column in columns]
            if not read:
                continue
            model = fit_regression([(features[:, read], gold) for features, gold in rows.values()])
            scores = model.predict_proba(of_domain[:, read])[:, 1] if examples else ()
            predictions = predict_by_threshold((example.id for example in examples), scores, THRESHOLD)
            facts = {"trained_on": list(rows), "features": [columns[place] for place in read]}
            found.append(Baseline(key=key, name=title, predictions=predictions, fitted_on=fitted_on, facts=facts))
        return found


def fit_regression(rows: Sequence[tuple[Values, NDArray[np.bool_]]]) -> Any:
    """Fits a logistic regression; every domain, and in it each class, has the same weight.

    Args:
        rows: For each domain the features [rows, features], and True where hallucinated [rows].
    """
    # scikit-learn is imported here because it would slow down the start of every command.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    features, gold = (np.concatenate(part) for part in zip(*rows, strict=True))
    shares = [0.5 / np.where(of_domain, of_domain.sum(), (~of_domain).sum()) for _, of_domain in rows]
    weights = np.concatenate(shares) * len(gold) / len(rows)
    model = make_pipeline(FunctionTransformer(compress_counts), StandardScaler(), LogisticRegression(max_iter=1000))
    return model.fit(features, gold, standardscaler__sample_weight=weights, logisticregression__sample_weight=weights)


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
