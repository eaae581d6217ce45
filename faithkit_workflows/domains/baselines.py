"""Fits the cheap baselines of each domain on the rows of the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from data_modules.reading.exclude import Excluded
from faithkit.baselines.simple_detectors import Baseline
from faithkit.records import HALLUCINATED, Example
from faithkit_workflows.domains.features import Features
from faithkit_workflows.domains.nested import FitRows, Fitted, Nested
from faithkit_workflows.domains.recipes import Recipe, Values, recipes_of
from faithkit_workflows.domains.rows import DomainRows, Rows

CHOSEN, CHOSEN_INSIDE = "chosen", "chosen inside"  # the baseline that is best on the domains that it may learn from


@dataclass(frozen=True, slots=True)
class FittedBaseline:
    """A baseline for a domain: what was fitted, and its predictions of the tested rows."""

    fitted: Fitted
    baseline: Baseline


class DomainBaselines:
    """Fits baselines for one domain after the other, each on the domains that share nothing with it.

    Args:
        domains: The rows of all domains.
        features: Computes what they read.
        nli: An NLI model; a domain's own takes its place where it has one.
        max_fit_rows: Rows of each domain that are learnt from.
        only: Keys of recipes, to fit these alone; none fits all.
        not_from: Domains that nothing learns from.
    """

    def __init__(
        self,
        domains: Mapping[str, DomainRows],
        features: Features,
        *,
        nli: str | None,
        max_fit_rows: int | None,
        only: Sequence[str] = (),
        not_from: Sequence[str] = (),
    ):
        self.domains, self.features, self.nli, self.only = domains, features, nli, only
        self.all_rows = {name: rows for name, rows in rows_to_fit(domains).items() if name not in not_from}
        self.fit_rows = {name: rows.capped(max_fit_rows) for name, rows in self.all_rows.items()}
        self._nested: dict[str | None, Nested] = {}

    def nli_of(self, name: str) -> str | None:
        """Gives the NLI model of a domain; none at all where the benchmark has none."""
        return self.nli and (self.domains[name].domain.nli or self.nli)

    def nested_of(self, name: str) -> Nested:
        """Gives the fits that a domain's model is among: those with the same NLI model share their parts."""
        nli = self.nli_of(name)
        if nli not in self._nested:
            rows = {
                other: FitRows(
                    features=self.features.of(f"{other}-fit", own.shown, nli),
                    gold=np.array([example.label == HALLUCINATED for example in own.shown], bool),
                    kin=self.domains[other].domain.kin,
                )
                for other, own in self.fit_rows.items()
            }
            self._nested[nli] = Nested(rows, self.features.columns(nli=nli is not None))
        return self._nested[nli]

    def recipes(self) -> list[Recipe]:
        """Gives the recipes of all domains."""
        known = recipes_of(self.features.columns(nli=self.nli is not None))
        return [one for one in known if not self.only or one.key in self.only]

    def fit(self, name: str, examples: Sequence[Example], part: str) -> list[FittedBaseline]:
        """Fits every recipe for a domain, and predicts its examples; none where it has no domain to learn from.

        Args:
            part: Of the domain that the examples are, in file names.
        """
        nested = self.nested_of(name)
        values = self.features.of(f"{name}-{part}", examples, self.nli_of(name))
        fitted = [one for recipe in self.recipes() if (one := nested.fit(recipe, name)) is not None]
        found = [FittedBaseline(one, _baseline(one, nested, examples, values)) for one in fitted]
        if known := [one for one in found if not np.isnan(one.fitted.inner_auroc)]:
            best = max(known, key=lambda one: one.fitted.inner_auroc)
            where = f"the same, and it is {best.baseline.name}"
            chosen = replace(best.baseline, key=CHOSEN, name=CHOSEN_INSIDE, fitted_on=where)
            found.append(FittedBaseline(best.fitted, chosen))
        return found


def rows_to_fit(domains: Mapping[str, DomainRows]) -> dict[str, Rows]:
    """Chooses the rows that models of other domains learn from, less those whose texts another domain tests.

    Domains that are only shown beside others are learnt from nowhere: their rows are others' too.
    """
    found = {}
    for name, own in domains.items():
        if own.domain.beside:
            continue
        others = [other for key, other in domains.items() if key not in own.domain.kin]
        excluded = Excluded.of([row for other in others for half in other.halves.values() for row in half.originals])
        rows = own.to_fit()
        kept = [i for i, row in enumerate(rows.originals) if not excluded.covers(row)]
        found[name] = rows.take(kept)
    return found


def _baseline(one: Fitted, nested: Nested, examples: Sequence[Example], values: Values) -> Baseline:
    said = one.predictions(examples, nested.select(one.recipe, values))
    fitted_on = f"{one.num_rows:,} rows of {', '.join(one.trained_on)}"
    return Baseline(key=one.recipe.key, name=one.recipe.name, predictions=said, fitted_on=fitted_on)
