"""Metrics of slices of a test set, all on the same resamples of its groups."""

from collections.abc import Mapping, Sequence

import numpy as np

from faithkit.metrics.classification import statistic
from faithkit.metrics.outcomes import Outcomes
from faithkit.statistics.intervals import Groups, Metric, Values, bootstrap

Slice = tuple[str, str]  # a field and its value


def sliced_metrics(
    outcomes: Outcomes,
    fields: Mapping[str, Sequence[str]],
    metrics: Sequence[str],
    *,
    num_resamples: int = 1000,
) -> dict[Slice, dict[str, Metric]]:
    """Computes classification metrics of each value of each field, with intervals over groups.

    Args:
        fields: By name the value of each row [N]; an empty one belongs to no slice.
        metrics: Those that are wanted; a slice of one class alone has no `macro_f1`.
    """
    statistics, sizes = {}, {}
    for name, values in fields.items():
        own = np.array(values, object)
        for value in filter(None, dict.fromkeys(values)):
            inside = own == value
            statistics[name, value] = statistic(_part(outcomes, inside))
            sizes[name, value] = int(inside.sum())

    def all_slices(weights: Values) -> dict[str, Values]:
        found: dict[str, Values] = {}
        with np.errstate(invalid="ignore", divide="ignore"):  # NaN where a resample has no row of a slice
            for place, part in enumerate(statistics.values()):
                scored = part(weights)
                found |= {f"{place} {metric}": scored[metric] for metric in metrics if _is_told(metric, scored)}
        return found

    counts = {f"{place} {metric}": size for place, size in enumerate(sizes.values()) for metric in metrics}
    scored = bootstrap(outcomes.groups, all_slices, n=counts, shares=True, num_resamples=num_resamples).metrics
    return {
        part: {metric: scored[f"{place} {metric}"] for metric in metrics if f"{place} {metric}" in scored}
        for place, part in enumerate(statistics)
    }


def _is_told(metric: str, scored: Mapping[str, Values]) -> bool:
    """Tells whether a slice has a metric: of one class alone a mean over both says nothing."""
    return metric != "macro_f1" or "balanced_accuracy" in scored


def _part(outcomes: Outcomes, rows: np.ndarray) -> Outcomes:
    groups = Groups(outcomes.groups.index[rows], outcomes.groups.count)
    scores = np.full(int(rows.sum()), np.nan)  # what ranks rows is not asked of slices
    return Outcomes(gold=outcomes.gold[rows], called=outcomes.called[rows], scores=scores, groups=groups)
