"""The numbers of one system's responses: a column for every metric of examples, and metrics of the whole corpus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from faithkit.evaluation.intervals import Groups, Scored, Statistic, Values, bootstrap


@dataclass(frozen=True, slots=True, eq=False)
class MetricColumns:
    """Everything that was measured of the responses to some examples.

    Args:
        columns: By name a value for each example [N], NaN where the metric does not apply; overall it is the mean.
        corpus: Metrics that are no mean over examples, as functions of weights over groups.
        remarks: Of each example what else its line of the scores file says.
    """

    groups: Groups
    columns: Mapping[str, Values]
    corpus: Sequence[Statistic] = ()
    remarks: Sequence[Mapping[str, Any]] | None = None
    notes: tuple[str, ...] = field(default=())

    def statistic(self, weights: Values) -> dict[str, Values]:
        """From weights over groups [R, G] to named values [R]."""
        found = dict(defined_means(self.groups, self.columns)(weights))
        for statistic in self.corpus:
            found |= statistic(weights)
        return found

    def scored(self, *, num_resamples: int = 1000, seed: int = 0) -> Scored:
        """Overall values with intervals over groups; n counts the examples that define the metric."""
        counts = {name: int(np.isfinite(column).sum()) for name, column in self.columns.items()}
        applied = MetricColumns(self.groups, {name: c for name, c in self.columns.items() if counts[name]}, self.corpus)
        scored = bootstrap(self.groups, applied.statistic, n=counts, num_resamples=num_resamples, seed=seed)
        nowhere = tuple(f"{name} is left out: no example defines it" for name, count in counts.items() if not count)
        return Scored(metrics=scored.metrics, notes=(*self.notes, *nowhere, *scored.notes))

    def rows(self) -> list[dict[str, Any]]:
        """Of each example its values, None where the metric does not apply, and its remarks."""
        columns = {name: column.tolist() for name, column in self.columns.items()}
        size = len(self.groups.index)
        values = [{n: v[i] if np.isfinite(v[i]) else None for n, v in columns.items()} for i in range(size)]
        remarks = self.remarks or [{}] * size
        return [{**row, **remark} for row, remark in zip(values, remarks, strict=True)]


def defined_means(groups: Groups, columns: Mapping[str, Values]) -> Statistic:
    """Means over the rows where a column is not NaN."""
    sums = {name: groups.sums(np.nan_to_num(column)) for name, column in columns.items()}
    sizes = {name: groups.sums(np.isfinite(column)) for name, column in columns.items()}

    def statistic(weights: Values) -> dict[str, Values]:
        found = {}
        for name in columns:
            total = weights @ sizes[name]
            found[name] = weights @ sums[name] / np.where(total > 0, total, np.nan)
        return found

    return statistic
