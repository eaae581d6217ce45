"""Compares human scores of systems as FaithDial's Table 7 does: each system against the best one of a column.

The paper marks p < 0.05 and p < 0.01 and names no test. Scores of two systems on the same items are paired, so there
are three results: the difference of the means with its interval over groups (faithkit/statistics/bootstrap.py), the p
of Wilcoxon's signed-rank test on the same items (Wilcoxon 1945), and this p corrected for the number of systems in the
column (Holm 1979), which the stars show.

An item's score is the mean over its annotators. A label's column is the share of annotators who chose it. A rating's
column has its value, over the items with a rating for both systems, since only faithful responses are rated.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from faithkit.scores.board import correct_by_holm
from faithkit.statistics.bootstrap import Difference, Evaluation, Groups, mean_statistic
from faithkit.statistics.metric import NUMBER, PROPORTION, Metric, MetricKind
from faithkit_papers.annotation.answers import NOMINAL, ORDINAL, Answered, labels_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One system in one column: its mean, and how it differs from the best (None for the best itself).

    Args:
        p_wilcoxon: NaN where the two are equal on every item.
        p_holm: The same, corrected for the systems of the column.
    """

    column: str
    system: str
    mean: Metric
    difference: Difference | None = None
    p_wilcoxon: float = float("nan")
    p_holm: float = float("nan")

    @property
    def stars(self) -> str:
        """** below 0.01, * below 0.05."""
        return "**" if self.p_holm < 0.01 else "*" if self.p_holm < 0.05 else ""


Scores = Mapping[str, Mapping[str, float]]  # by system and item
Labels = Mapping[str, Iterable[str]]  # by question


def columns_of(
    answered: Sequence[Answered], kinds: Mapping[str, str], labels: Labels | None = None
) -> dict[str, dict[str, dict[str, float]]]:
    """Collects scores by column, system and item: ratings as they are, labels as shares (`question=label`).

    Args:
        labels: The labels of questions; one that was never chosen has the share 0.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for question, kind in kinds.items():
        given = [one for one in answered if question in one.answers]
        if kind == ORDINAL:
            found[question] = _means([(one, float(one.answers[question])) for one in given])
        elif kind == NOMINAL:
            for label in _labels_of(given, question, labels):
                # A question may be asked about some answers only: the others do not have the label.
                chosen = [(one, float(label in labels_in(one.answers.get(question, ())))) for one in answered]
                found[f"{question}={label}"] = _means(chosen)
    return found


def measure_shares(
    answered: Sequence[Answered], kinds: Mapping[str, str], labels: Labels | None = None, *, num_resamples: int = 1000
) -> dict[str, Metric]:
    """Computes `<question>=<label>/share` over the items to which the question was answered."""
    groups = {f"{one.system or ''}/{one.context}": one.group for one in answered}
    found = {}
    for question in (name for name, kind in kinds.items() if kind == NOMINAL):
        given = [one for one in answered if labels_in(one.answers.get(question, ()))]
        for label in _labels_of(given, question, labels) if given else ():
            means = _means((one, float(label in labels_in(one.answers[question]))) for one in given)
            values = {f"{system}/{item}": value for system, of in means.items() for item, value in of.items()}
            rows = Groups.of(groups[item] for item in values)
            scored = _evaluate_mean(rows, list(values.values()), PROPORTION).score(num_resamples=num_resamples)
            found[f"{question}={label}/share"] = scored.metrics["mean"]
    return found


def _labels_of(answered: Iterable[Answered], question: str, labels: Labels | None) -> list[str]:
    chosen = {label for one in answered for label in labels_in(one.answers[question])}
    return sorted(chosen.union((labels or {}).get(question, ())))


def _means(values: Iterable[tuple[Answered, float]]) -> dict[str, dict[str, float]]:
    """Averages the values of each system and item over annotators."""
    given: dict[str, dict[str, list[float]]] = {}
    for one, value in values:
        given.setdefault(one.system or "", {}).setdefault(one.context, []).append(value)
    return {
        system: {item: float(np.mean(several)) for item, several in items.items()} for system, items in given.items()
    }


def compare_column(
    column: str, scores: Scores, groups: Mapping[str, str], *, num_resamples: int = 1000
) -> list[Compared]:
    """Compares every system of a column with the best, in the order of the systems."""
    from scipy.stats import wilcoxon

    less = column.rpartition("=")[2].lower() in ("hallucination", "generic", "no", "inaccurate")
    averages = {system: float(np.mean(list(of.values()))) for system, of in scores.items()}
    best = (min if less else max)(averages, key=averages.__getitem__)
    found = []
    for system, of in scores.items():
        rows = Groups.of(groups[item] for item in of)
        kind = PROPORTION if "=" in column else NUMBER
        mean = _evaluate_mean(rows, list(of.values()), kind).score(num_resamples=num_resamples).metrics["mean"]
        compared = Compared(column=column, system=system, mean=mean)
        shared = [item for item in of if item in scores[best]]
        if system != best and shared:
            rows = Groups.of(groups[item] for item in shared)
            first, second = (np.array([side[item] for item in shared]) for side in (of, scores[best]))
            one, best_one = (_evaluate_mean(rows, values, kind) for values in (first, second))
            difference = one.subtract(best_one, num_resamples=num_resamples)["mean"]
            changed = first - second
            p = float(wilcoxon(changed, zero_method="pratt").pvalue) if changed.any() else float("nan")
            compared = replace(compared, difference=difference, p_wilcoxon=p)
        found.append(compared)
    tested = [row.p_wilcoxon for row in found if np.isfinite(row.p_wilcoxon)]
    corrected = iter(correct_by_holm(tested))
    return [replace(row, p_holm=next(corrected)) if np.isfinite(row.p_wilcoxon) else row for row in found]


def _evaluate_mean(groups: Groups, values: ArrayLike, kind: MetricKind) -> Evaluation:
    return Evaluation(groups=groups, statistic=mean_statistic(groups, {"mean": values}), kinds=kind)
