"""Metrics of one system's responses: a column for each metric of examples, and metrics of the whole corpus."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from faithkit.errors import UserError
from faithkit.metrics.classification import safe_ratio
from faithkit.metrics.outcomes import align_predictions
from faithkit.records import Example, Prediction
from faithkit.statistics.bootstrap import Groups, ScoredMetrics, bootstrap
from faithkit.statistics.spread import Statistic, Values

# How the names end or begin of metrics that count responses: intervals of a share never leave [0, 1].
COUNTED = ("_rate", "fallback")


@dataclass(frozen=True, slots=True, eq=False)
class MetricColumns:
    """Holds everything that was measured of the responses to some examples.

    Args:
        columns: Each metric's values by name [N], NaN where it does not apply; its overall value is the mean.
        corpus: Metrics that are no means over examples (BLEU, distinct-n), as functions of weights over groups.
        details: Further fields of each example's line in the scores file, such as Q2's questions.
    """

    groups: Groups
    columns: Mapping[str, Values]
    corpus: Sequence[Statistic] = ()
    details: Sequence[Mapping[str, Any]] | None = None
    notes: tuple[str, ...] = field(default=())

    def statistic(self, weights: Values) -> dict[str, Values]:
        """Maps weights over groups [R, G] to named values [R]."""
        found = dict(defined_means(self.groups, self.columns)(weights))
        for statistic in self.corpus:
            found |= statistic(weights)
        return found

    def scored(self, *, shares: Collection[str] = (), num_resamples: int = 1000, seed: int = 0) -> ScoredMetrics:
        """Computes overall values with intervals over groups; n counts the examples that define the metric.

        Args:
            shares: Metrics that lie in [0, 1] beside those that count responses.
        """
        counts = {name: int(np.isfinite(column).sum()) for name, column in self.columns.items()}
        applied = MetricColumns(self.groups, {name: c for name, c in self.columns.items() if counts[name]}, self.corpus)
        bounded = [name for name in self.columns if name.endswith(COUNTED) or name.startswith(COUNTED)]
        options: dict[str, Any] = {
            "n": counts,
            "shares": [*bounded, *shares],
            "num_resamples": num_resamples,
            "seed": seed,
        }
        scored = bootstrap(self.groups, applied.statistic, **options)
        nowhere = tuple(f"{name} is left out: no example defines it" for name, count in counts.items() if not count)
        return ScoredMetrics(metrics=scored.metrics, notes=(*self.notes, *nowhere, *scored.notes))

    def rows(self) -> list[dict[str, Any]]:
        """Lists each example's values, None where the metric does not apply, with its details."""
        columns = {name: column.tolist() for name, column in self.columns.items()}
        size = len(self.groups.index)
        values = [{n: v[i] if np.isfinite(v[i]) else None for n, v in columns.items()} for i in range(size)]
        details = self.details or [{}] * size
        return [{**row, **detail} for row, detail in zip(values, details, strict=True)]


def defined_means(groups: Groups, columns: Mapping[str, Values]) -> Statistic:
    """Gives the means of columns as a function of weights, over the rows where a column is not NaN."""
    sums = {name: groups.sums(np.nan_to_num(column)) for name, column in columns.items()}
    sizes = {name: groups.sums(np.isfinite(column)) for name, column in columns.items()}

    def statistic(weights: Values) -> dict[str, Values]:
        return {name: safe_ratio(weights @ sums[name], weights @ sizes[name]) for name in columns}

    return statistic


@dataclass(frozen=True, slots=True, eq=False)
class PairedResponses:
    """Examples, a response to each, another system's where there is one, and notes on what was left out."""

    examples: list[Example]
    texts: list[str]
    against: list[str] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        examples: Sequence[Example],
        predictions: Mapping[str, Prediction],
        against: Mapping[str, Prediction] | None = None,
        *,
        incomplete: bool = False,
    ) -> "PairedResponses":
        """Joins examples and predictions by id.

        Args:
            incomplete: Leaves out examples without a response and responses without an example, instead of refusing
                them; `against` must answer all that remain.

        Raises:
            UserError: Ids that stand on one side only, or predictions that hold no response at all.
        """
        notes: tuple[str, ...] = ()
        if incomplete:
            examples, predictions, notes = _common(examples, predictions)
        texts = _texts(examples, predictions)
        if against is None:
            return cls(list(examples), texts, None, notes)
        wanted = {e.id for e in examples}
        other = {id_: p for id_, p in against.items() if id_ in wanted} if incomplete else against
        try:
            return cls(list(examples), texts, _texts(examples, other), notes)
        except UserError as error:
            raise UserError(f"against: {error.problem}", hint="compare two files over the same examples") from error


def _common(
    examples: Sequence[Example], predictions: Mapping[str, Prediction]
) -> tuple[Sequence[Example], Mapping[str, Prediction], tuple[str, ...]]:
    kept = [example for example in examples if example.id in predictions]
    if not kept or len(kept) == len(examples) == len(predictions):
        return examples, predictions, ()  # with nothing in common `align` refuses them, as without `incomplete`
    note = (
        f"only {len(kept):,} of {len(examples):,} examples and of {len(predictions):,} responses are scored: the "
        "others have no counterpart"
    )
    return kept, {example.id: predictions[example.id] for example in kept}, (note,)


def _texts(examples: Sequence[Example], predictions: Mapping[str, Prediction]) -> list[str]:
    texts = [prediction.text for prediction in align_predictions(examples, predictions, judged=False)]
    if not any(texts):
        hint = "each line needs its response as text; verdicts on responses are scored with benchmark=faithcritic"
        raise UserError("these predictions hold no responses: every text is empty", hint=hint)
    return texts
