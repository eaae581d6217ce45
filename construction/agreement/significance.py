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

from construction.agreement.answers import NOMINAL, ORDINAL, Answered
from faithkit.statistics.bootstrap import Difference, Groups, bootstrap, mean_statistic, paired_difference
from faithkit.statistics.metric import NUMBER, Metric

# Labels whose share should be low.
LESS_IS_BETTER = ("hallucination", "generic", "no", "inaccurate")


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
    less_is_better: bool
    difference: Difference | None = None
    p_wilcoxon: float = float("nan")
    p_holm: float = float("nan")

    @property
    def stars(self) -> str:
        """** below 0.01, * below 0.05."""
        return "**" if self.p_holm < 0.01 else "*" if self.p_holm < 0.05 else ""


Scores = Mapping[str, Mapping[str, float]]  # by system and item


def columns_of(answered: Sequence[Answered], kinds: Mapping[str, str]) -> dict[str, dict[str, dict[str, float]]]:
    """Collects scores by column, system and item: ratings as they are, labels as shares (`question=label`)."""
    given: dict[str, dict[str, dict[str, list[float]]]] = {}

    def add(column: str, one: Answered, value: float) -> None:
        given.setdefault(column, {}).setdefault(one.system or "", {}).setdefault(one.context, []).append(value)

    for question, kind in kinds.items():
        answers = [(one, one.answers[question]) for one in answered if question in one.answers]
        if kind == ORDINAL:
            for one, answer in answers:
                add(question, one, float(answer))
        elif kind == NOMINAL:
            for label in sorted({label for _, answer in answers for label in _labels(answer)}):
                # A question may be asked about some answers only: the others do not have the label.
                for one in answered:
                    add(f"{question}={label}", one, float(label in _labels(one.answers.get(question, ()))))
    return {
        column: {
            system: {item: float(np.mean(values)) for item, values in items.items()} for system, items in of.items()
        }
        for column, of in given.items()
    }


def _labels(answer: object) -> list[str]:
    return list(answer) if isinstance(answer, list | tuple) else [str(answer)]


def compare_column(
    column: str, scores: Scores, groups: Mapping[str, str], *, num_resamples: int = 1000
) -> list[Compared]:
    """Compares every system of a column with the best, in the order of the systems."""
    less = column.rpartition("=")[2].lower() in LESS_IS_BETTER
    averages = {system: float(np.mean(list(of.values()))) for system, of in scores.items()}
    best = (min if less else max)(averages, key=averages.__getitem__)
    found = []
    for system, of in scores.items():
        rows = Groups.of(groups[item] for item in of)
        means = mean_statistic(rows, {"mean": list(of.values())})
        mean = bootstrap(rows, means, kinds=NUMBER, num_resamples=num_resamples).metrics["mean"]
        compared = Compared(column=column, system=system, mean=mean, less_is_better=less)
        shared = [item for item in of if item in scores[best]]
        if system != best and shared:
            compared = _against(compared, of, scores[best], shared, groups, num_resamples)
        found.append(compared)
    return _corrected(found)


def _against(
    compared: Compared,
    scores: Mapping[str, float],
    best: Mapping[str, float],
    items: Sequence[str],
    groups: Mapping[str, str],
    num_resamples: int,
) -> Compared:
    from scipy.stats import wilcoxon

    rows = Groups.of(groups[item] for item in items)
    first, second = np.array([scores[item] for item in items]), np.array([best[item] for item in items])
    statistics = (mean_statistic(rows, {"mean": values}) for values in (first, second))
    difference = paired_difference(rows, *statistics, num_resamples=num_resamples)["mean"]
    changed = first - second
    p = float(wilcoxon(changed, zero_method="pratt").pvalue) if changed.any() else float("nan")
    return replace(compared, difference=difference, p_wilcoxon=p)


def _corrected(compared: Iterable[Compared]) -> list[Compared]:
    """Corrects the p-values for their number (Holm)."""
    rows = list(compared)
    tested = sorted((row.p_wilcoxon, place) for place, row in enumerate(rows) if np.isfinite(row.p_wilcoxon))
    largest = 0.0
    for rank, (p, place) in enumerate(tested):
        largest = max(largest, min(1.0, p * (len(tested) - rank)))
        rows[place] = replace(rows[place], p_holm=largest)
    return rows
