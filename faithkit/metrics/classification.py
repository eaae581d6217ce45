"""Classification metrics of a detector, hallucinated or faithful, with intervals over dialogues or documents.

Which to use: `macro_f1` as the headline (the mean F1 of both classes, so that neither can be ignored), `f1`,
`precision` and `recall` of the hallucinated class, `faithful_f1` and the means of both classes (`mean_precision`,
`mean_recall`) where papers give them, `auroc` and `average_precision` whatever the threshold, `ece` and
`brier` (mean squared error of the score) for calibration. Accuracy means little beside `majority_accuracy`, which a
constant answer reaches.

Everything but the ranking metrics follows from sums over rows, kept per group, so a resample is one matrix product.

An unparsed reply counts as wrong wherever its row's class counts (accuracy, recall, F1) and never as a label. Where
the data has neither rows nor calls of a class its F1 is 0, as in scikit-learn; precision without a call is 0. A
resample that leaves 0/0 of what the data define does not count. `ece` is the usual figure, which few rows push up;
`ece_debiased` is corrected for that, and the interval of both is. What needs both classes (balanced accuracy, AUROC,
average precision) or scores is left out where they are missing, and a note says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from faithkit.calibration.thresholds import NUM_BINS, assign_bins
from faithkit.metrics.outcomes import CLASSES, Outcomes, join_outcomes
from faithkit.metrics.ranking import Ranking
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit.statistics.bootstrap import Difference, Groups, ScoredMetrics, bootstrap, paired_difference
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import Statistic, Values

SCORE_METRICS = ("auroc", "average_precision", "ece", "brier")
DEBIASED = ("ece",)  # few rows push it up, and resamples of them further
FEW_ROWS = 30  # of a class; below, a user is told
BOTH_CLASSES = ("balanced_accuracy", "auroc", "average_precision")


def classification_metrics(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], *, num_resamples: int = 1000, seed: int = 0
) -> ScoredMetrics:
    """Computes every classification metric with its 95% interval, by name without split and dataset.

    Raises:
        UserError: No examples, examples without a label, or ids that do not match.
    """
    return score_outcomes(join_outcomes(examples, predictions), num_resamples=num_resamples, seed=seed)


def compare_predictions(
    examples: Sequence[Example],
    first: Mapping[str, Prediction],
    second: Mapping[str, Prediction],
    *,
    num_resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Difference]:
    """Subtracts the second's metrics from the first's, tested on the same resamples of groups."""
    ours, theirs = join_outcomes(examples, first), join_outcomes(examples, second)
    return paired_difference(
        ours.groups,
        classification_statistic(ours),
        classification_statistic(theirs),
        num_resamples=num_resamples,
        seed=seed,
    )


def score_outcomes(outcomes: Outcomes, *, num_resamples: int = 1000, seed: int = 0) -> ScoredMetrics:
    """Computes `classification_metrics` of rows that are joined already."""
    num_scored = int(outcomes.scored.sum())
    counts = dict.fromkeys(SCORE_METRICS, num_scored)
    options: dict[str, Any] = {"shares": True, "debiased": DEBIASED, "num_resamples": num_resamples, "seed": seed}
    result = bootstrap(outcomes.groups, classification_statistic(outcomes), n=counts, **options)
    return ScoredMetrics(metrics=result.metrics, notes=(*_notes(outcomes), *result.notes))


def classification_statistic(outcomes: Outcomes) -> Statistic:
    """Gives all metrics as a function of group weights."""
    gold, groups = outcomes.gold, outcomes.groups
    cell = gold.astype(np.intp) * len(CLASSES) + outcomes.called
    columns = [np.eye(2 * len(CLASSES))[cell]]  # [N, 6]: gold x called
    majority = int(2 * gold.sum() > len(gold))  # the class of the whole data, in every resample
    has_both = bool(0 < gold.sum() < len(gold))
    rows = outcomes.scored
    ranking = None
    if rows.any():
        scores = np.where(rows, outcomes.scores, 0.0)
        gap = np.where(rows, scores - gold, 0.0)
        in_bins = gap[:, None] * np.eye(NUM_BINS)[assign_bins(scores)]  # [N, bins]
        columns += [rows[:, None], gap[:, None] ** 2, in_bins]
        ranking = Ranking(scores[rows], gold[rows], Groups(groups.index[rows], groups.count))
    table = groups.sums(np.concatenate(columns, axis=1))  # [G, 6], or [G, 6 + 2 + bins] with scores
    whole = table[:, :6].sum(axis=0).reshape(2, len(CLASSES))

    def values(weights: Values) -> dict[str, Values]:
        summed = weights @ table
        found = _count_metrics(summed[:, :6].reshape(-1, 2, len(CLASSES)), majority, whole)
        if ranking is not None:
            found |= ranking(weights) | _errors(summed[:, 6], summed[:, 7], summed[:, 8:])
        # What the whole data does not define is no metric of it; a resample without both classes still gives NaN.
        return {name: value for name, value in found.items() if has_both or name not in BOTH_CLASSES}

    return values


def _count_metrics(counts: Values, majority: int, whole: Values) -> dict[str, Values]:
    """Maps tables [R, gold 2, called 3] to values [R].

    Args:
        whole: The table of the whole data: 0/0 there is 0, elsewhere it is undefined.
    """
    size = counts.sum(axis=2)  # [R, 2]: rows of each class
    right = np.stack([counts[:, 0, 0], counts[:, 1, 1]], axis=1)
    called = counts.sum(axis=1)  # [R, 3]
    total = size.sum(axis=1)
    in_all, called_in_all = whole.sum(axis=1), whole.sum(axis=0)
    f1 = safe_ratio(2 * right, called[:, :2] + size, called_in_all[:2] + in_all)
    with np.errstate(invalid="ignore"):
        balanced = np.where((size > 0).all(axis=1), (right / size).mean(axis=1), np.nan)
    in_majority = size[:, majority] / total
    return {
        "macro_f1": f1.mean(axis=1),
        "f1": f1[:, 1],
        "precision": safe_ratio(right[:, 1], called[:, 1], called_in_all[1]),
        "recall": safe_ratio(right[:, 1], size[:, 1], in_all[1]),
        "faithful_f1": f1[:, 0],
        "mean_precision": safe_ratio(right, called[:, :2], called_in_all[:2]).mean(axis=1),
        "mean_recall": safe_ratio(right, size, in_all).mean(axis=1),
        "accuracy": right.sum(axis=1) / total,
        "balanced_accuracy": balanced,
        "unparsed_rate": called[:, 2] / total,
        "predicted_rate": called[:, 1] / total,
        "gold_rate": size[:, 1] / total,
        "majority_accuracy": in_majority,
        "majority_macro_f1": in_majority / (1 + in_majority),  # F1 2p / (1 + p) of one class, 0 of the other
    }


def safe_ratio(part: Values, of: Values, of_all: ArrayLike = 1) -> Values:
    """Divides; where there is nothing to divide by, the share is undefined (NaN).

    Args:
        of_all: The divisor of the whole data: where that is 0 too, so is the share.
    """
    nothing = np.where(np.asarray(of_all) > 0, np.nan, 0.0)
    return np.where(of > 0, part / np.where(of > 0, of, 1.0), nothing)


def _errors(rows: Values, squares: Values, gaps: Values) -> dict[str, Values]:
    # A resample whose groups have no scores is left out of the interval.
    return {"ece": safe_ratio(np.abs(gaps).sum(axis=1), rows), "brier": safe_ratio(squares, rows)}


def _notes(outcomes: Outcomes) -> list[str]:
    notes = []
    gold: NDArray[np.int8] = outcomes.gold
    without = int((~outcomes.scored).sum())
    if without == len(gold):
        notes.append(f"no prediction has a score: {', '.join(SCORE_METRICS)} are left out")
    elif without:
        notes.append(f"{without} of {len(gold)} predictions have no score: {', '.join(SCORE_METRICS)} leave them out")
    if not (outcomes.called == 1).any():
        notes.append(f"no row is called {HALLUCINATED}: precision counts as 0")
    if 0 < (fewer := min(int(gold.sum()), int(len(gold) - gold.sum()))) < FEW_ROWS:
        notes.append(f"only {fewer} rows of the rarer class: what divides by them is uncertain")
    if not 0 < gold.sum() < len(gold):
        only, absent = (HALLUCINATED, FAITHFUL) if gold.any() else (FAITHFUL, HALLUCINATED)
        notes.append(
            f"every example is {only}: {', '.join(BOTH_CLASSES)} are left out, macro_f1 counts the F1 of {absent} as 0"
        )
    return notes


Slice = tuple[str, str]  # a field and its value


def measure_slices(
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
            statistics[name, value] = classification_statistic(_select_rows(outcomes, inside))
            sizes[name, value] = int(inside.sum())

    def all_slices(weights: Values) -> dict[str, Values]:
        found: dict[str, Values] = {}
        with np.errstate(invalid="ignore", divide="ignore"):  # NaN where a resample has no row of a slice
            for place, part in enumerate(statistics.values()):
                scored = part(weights)
                found |= {f"{place} {metric}": scored[metric] for metric in metrics if _is_defined(metric, scored)}
        return found

    counts = {f"{place} {metric}": size for place, size in enumerate(sizes.values()) for metric in metrics}
    scored = bootstrap(outcomes.groups, all_slices, n=counts, shares=True, num_resamples=num_resamples).metrics
    return {
        part: {metric: scored[f"{place} {metric}"] for metric in metrics if f"{place} {metric}" in scored}
        for place, part in enumerate(statistics)
    }


def _is_defined(metric: str, scored: Mapping[str, Values]) -> bool:
    """Tells whether a slice has a metric: of one class alone a mean over both says nothing."""
    return metric != "macro_f1" or "balanced_accuracy" in scored


def _select_rows(outcomes: Outcomes, rows: np.ndarray) -> Outcomes:
    groups = Groups(outcomes.groups.index[rows], outcomes.groups.count)
    scores = np.full(int(rows.sum()), np.nan)  # what ranks rows is not asked of slices
    return Outcomes(gold=outcomes.gold[rows], called=outcomes.called[rows], scores=scores, groups=groups)


def score_validation(scores: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Computes the classification metrics at threshold 0.5, and the loss.

    Args:
        scores: P(hallucinated) [rows].
        labels: 1 for hallucinated [rows].
    """
    found, gold = np.asarray(scores, np.float64), np.asarray(labels, np.int8)
    groups = Groups.of(map(str, range(len(gold))))
    outcomes = Outcomes(gold=gold, called=(found >= 0.5).astype(np.int8), scores=found, groups=groups)
    metrics = {
        name: float(value[0]) for name, value in classification_statistic(outcomes)(np.ones((1, len(gold)))).items()
    }
    right = np.where(gold == 1, found, 1 - found)
    metrics["loss"] = float(-np.log(np.maximum(right, 1e-12)).mean())
    return metrics
