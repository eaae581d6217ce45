"""Classification metrics of a detector, hallucinated or faithful, with intervals over dialogues or documents.

Which to use: `macro_f1` as the headline (the mean F1 of both classes, so that neither can be ignored), `f1`,
`precision` and `recall` of the hallucinated class, `faithful_f1` and the means over both classes (`mean_precision`,
`mean_recall`) where papers give them, `auroc` and `average_precision` for any threshold, `ece` and `brier` (mean
squared error of the score) for calibration. Compare accuracy with `majority_accuracy`, which a constant answer reaches.

Everything but the ranking metrics follows from sums over rows, kept per group, so a resample is one matrix product.

An unparsed reply counts as wrong wherever the class of its row counts (accuracy, recall, F1) and never as a label.
Where the data has neither rows nor predictions of a class its F1 is 0, as in scikit-learn; precision without a
prediction is 0. A resample with 0/0 where the whole data defines a value does not count. Few rows push `ece` up;
`ece_debiased` and the interval of both are corrected for that. Metrics that need both classes (balanced accuracy,
AUROC, average precision) or scores are left out where these are missing, with a note.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from faithkit.calibration import NUM_BINS, assign_bins
from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, LABELS, UNPARSED, Example, Prediction
from faithkit.scores.measures import CLASSIFICATION
from faithkit.statistics.bootstrap import Evaluation, Groups, ScoredMetrics, bootstrap
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import Statistic, Values

CLASSES = (*LABELS, UNPARSED)  # the columns of a confusion table: an unparsed reply is an outcome by itself
# Above the first share of unparsed replies reports say so; above the second they show no other figure of the model.
REPORTED_UNPARSED, TOO_MANY_UNPARSED = 0.05, 0.5
NOT_SHOWN = "most replies could not be read as a verdict; metrics.json counts them as wrong"
BLOCK = 1 << 16  # resamples x rows worked on at once: what stays in a core's cache
SCORE_METRICS = ("auroc", "average_precision", "ece", "brier")
BOTH_CLASSES = ("balanced_accuracy", "auroc", "average_precision")
Slice = tuple[str, str]  # a field and its value


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Gold labels and predictions, row by row in the order of the examples.

    Args:
        gold: 1 where hallucinated [N].
        called: Position in `CLASSES` [N]: 0 faithful, 1 hallucinated, 2 unparsed.
        scores: P(hallucinated) [N], NaN where the detector gave none.
        groups: The dialogue or document of each row.
    """

    gold: NDArray[np.int8]
    called: NDArray[np.int8]
    scores: NDArray[np.float64]
    groups: Groups

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Marks the rows that have a score [N]."""
        return ~np.isnan(self.scores)

    def with_predictions(self, predictions: Iterable[Prediction]) -> "Outcomes":
        """Replaces the predictions by those of another detector, in the order of the rows."""
        rows = list(predictions)
        called = np.array([CLASSES.index(row.label) for row in rows], np.int8)
        return replace(self, called=called, scores=scores_of(rows))

    def select(self, rows: NDArray[np.bool_], *, keep_groups: bool = False) -> "Outcomes":
        """Selects the marked rows.

        Args:
            keep_groups: Keeps groups that have no rows left, so that the resamples are those of all rows.
        """
        index, count = self.groups.index[rows], self.groups.count
        if not keep_groups:
            names, index = np.unique(index, return_inverse=True)
            count = len(names)
        return Outcomes(self.gold[rows], self.called[rows], self.scores[rows], Groups(index, count))


def scores_of(predictions: Sequence[Prediction]) -> NDArray[np.float64]:
    """Collects P(hallucinated) [N], NaN where there is none."""
    return np.array([np.nan if row.score is None else row.score for row in predictions], np.float64)


def align_predictions(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], *, judged: bool = True
) -> list[Prediction]:
    """Finds the prediction of each example, in the order of the examples.

    Args:
        judged: Every prediction must have a label; generated responses have none.

    Raises:
        UserError: No examples, duplicate ids, ids on one side only, or a missing label.
    """
    if not examples:
        raise UserError("there are no examples to score", hint="check benchmark.path, split and num_rows")
    ids = [example.id for example in examples]
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = next(id_ for id_ in ids if id_ in seen or seen.add(id_))  # type: ignore[func-returns-value]
        raise UserError(f"two examples have the id {shorten(twice)}", hint="make the ids of the data unique")
    missing = [id_ for id_ in ids if id_ not in predictions]
    extra = set(predictions).difference(ids) if len(predictions) + len(missing) > len(ids) else ()
    if missing or extra:
        problems = []
        if missing:
            problems.append(f"{len(missing)} of {len(ids)} examples have no prediction ({_list_first(missing)})")
        if extra:
            in_order = [id_ for id_ in predictions if id_ in extra]
            problems.append(f"{len(extra)} of {len(predictions)} predictions have no example ({_list_first(in_order)})")
        hint = "score the same file, split, num_rows and seed that the predictions were made on"
        raise UserError("; ".join(problems), hint=hint)
    unjudged = [id_ for id_ in ids if predictions[id_].label is None] if judged else []
    if unjudged:
        problem = f"{len(unjudged)} of {len(ids)} predictions have no label ({_list_first(unjudged)})"
        raise UserError(problem, hint="these are responses: score them with benchmark=faithdial, wow, ...")
    return [predictions[id_] for id_ in ids]


def join_outcomes(examples: Sequence[Example], predictions: Mapping[str, Prediction]) -> Outcomes:
    """Joins examples and predictions by id into arrays.

    Raises:
        UserError: As `align_predictions`; or an example has no gold label.
    """
    aligned = align_predictions(examples, predictions)
    unlabelled = [example.id for example in examples if example.label is None]
    if unlabelled:
        problem = f"{len(unlabelled)} of {len(examples)} examples have no gold label ({_list_first(unlabelled)})"
        raise UserError(problem, hint="choose a split or a benchmark that is labelled")
    gold = np.array([example.label == HALLUCINATED for example in examples], np.int8)
    groups = Groups.of(example.group for example in examples)
    return Outcomes(gold, gold, scores_of(aligned), groups).with_predictions(aligned)


def _list_first(ids: Sequence[str]) -> str:
    return ", ".join(shorten(id_, 40) for id_ in ids[:3]) + ", ..." * (len(ids) > 3)


class Ranking:
    """Computes AUROC and average precision of P(hallucinated) under group weights, equal to scikit-learn's.

    AUROC is the share of pairs of a hallucinated and a faithful row in which the hallucinated one scores higher, ties
    counted half. Average precision is sum_t (recall_t - recall_{t-1}) * precision_t over the distinct scores t, from
    the highest (Saito & Rehmsmeier 2015 on why it suits rare classes better). Use them to compare detectors whatever
    their threshold; neither says that the scores are calibrated, or that a good threshold is known.

    Rows are sorted once. A resample changes only their weights, so each costs two cumulative sums.

    Args:
        scores: P(hallucinated) [N], no NaN.
        gold: 1 where hallucinated [N].
        groups: The rows' groups.
    """

    def __init__(self, scores: ArrayLike, gold: ArrayLike, groups: Groups):
        values = np.asarray(scores, np.float64)
        order = np.argsort(-values, kind="stable")
        self._groups = groups.index[order]
        self._positive = np.asarray(gold, np.float64)[order]
        # Rows of equal score come in together: the curves have a point only at the end of each run of ties.
        starts = np.flatnonzero(np.diff(values[order], prepend=np.inf))
        self._starts = starts if len(starts) < len(values) else None

    def __call__(self, weights: Values) -> dict[str, Values]:
        """Maps weights [R, G] to values [R], NaN where a resample holds one class only."""
        rows, dot = max(1, BLOCK // len(self._groups)), "rt,rt->r"
        found = np.empty((2, len(weights)))
        for start in range(0, len(weights), rows):
            # [r, N]: how often each row was drawn, highest score first
            drawn = np.take(weights[start : start + rows], self._groups, axis=1)
            hallucinated = drawn * self._positive
            if self._starts is not None:  # [r, T]: rows of one score as one column
                drawn = np.add.reduceat(drawn, self._starts, axis=1)
                hallucinated = np.add.reduceat(hallucinated, self._starts, axis=1)
            called = np.cumsum(drawn, axis=1)  # rows that a threshold at this score calls hallucinated
            hits = np.cumsum(hallucinated, axis=1)  # of these, rightly so
            positives, total = hits[:, -1], called[:, -1]
            has_both = (positives > 0) & (positives < total)

            # AUROC: of all pairs of a hallucinated and a faithful row, those in the right order; ties count half.
            faithful = drawn - hallucinated
            pairs = np.where(has_both, positives * (total - positives), np.nan)
            right_or_tied = np.einsum(dot, faithful, hits)  # hallucinated rows that score at least as each faithful one
            tied = np.einsum(dot, faithful, hallucinated)

            # Average precision: precision at each score, weighted by the recall gained there, without interpolation.
            precision = hits / np.maximum(called, 1.0)  # a resample may have drawn nothing so far
            gained = np.einsum(dot, hallucinated, precision)
            found[0, start : start + rows] = (right_or_tied - tied / 2) / pairs
            found[1, start : start + rows] = gained / np.where(has_both, positives, np.nan)
        return {"auroc": found[0], "average_precision": found[1]}


def evaluate_labels(outcomes: Outcomes) -> Evaluation:
    """Prepares every classification metric of a detector, by name without split and dataset."""
    notes, gold = [], outcomes.gold
    total, positive = len(gold), int(gold.sum())
    without = int((~outcomes.scored).sum())
    if without == total:
        notes.append(f"no prediction has a score: {', '.join(SCORE_METRICS)} are left out")
    elif without:
        notes.append(f"{without} of {total} predictions have no score: {', '.join(SCORE_METRICS)} leave them out")
    if not (outcomes.called == 1).any():
        notes.append(f"no row is called {HALLUCINATED}: precision counts as 0")
    if 0 < (rarer := min(positive, total - positive)) < 30:
        notes.append(f"only {rarer} rows of the rarer class: what divides by them is uncertain")
    if not rarer:
        only, absent = (HALLUCINATED, FAITHFUL) if positive else (FAITHFUL, HALLUCINATED)
        notes.append(
            f"every example is {only}: {', '.join(BOTH_CLASSES)} are left out, macro_f1 counts the F1 of {absent} as 0"
        )
    return Evaluation(
        groups=outcomes.groups,
        statistic=classification_statistic(outcomes),
        kinds=CLASSIFICATION,
        n=dict.fromkeys(SCORE_METRICS, int(outcomes.scored.sum())),
        notes=tuple(notes),
        right=outcomes.called == gold,
    )


def classification_metrics(outcomes: Outcomes, *, num_resamples: int = 1000) -> ScoredMetrics:
    """Computes every classification metric with its 95% interval."""
    return evaluate_labels(outcomes).score(num_resamples=num_resamples)


def classification_statistic(outcomes: Outcomes) -> Statistic:
    """Makes a function of group weights that computes all metrics."""
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
    whole = table[:, :6].sum(axis=0).reshape(2, len(CLASSES))  # 0/0 here is 0; in a resample alone it is undefined
    in_all, called_in_all = whole.sum(axis=1), whole.sum(axis=0)

    def values(weights: Values) -> dict[str, Values]:
        summed = weights @ table
        counts = summed[:, :6].reshape(-1, 2, len(CLASSES))
        size, called = counts.sum(axis=2), counts.sum(axis=1)  # [R, 2] and [R, 3]: rows of each class
        right = np.stack([counts[:, 0, 0], counts[:, 1, 1]], axis=1)
        total = size.sum(axis=1)
        f1 = safe_ratio(2 * right, called[:, :2] + size, called_in_all[:2] + in_all)
        with np.errstate(invalid="ignore"):
            balanced = np.where((size > 0).all(axis=1), (right / size).mean(axis=1), np.nan)
        in_majority = size[:, majority] / total
        found = {
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
        if ranking is not None:
            num_scored, squares, gaps = summed[:, 6], summed[:, 7], summed[:, 8:]
            found |= ranking(weights)
            found |= {
                "ece": safe_ratio(np.abs(gaps).sum(axis=1), num_scored),
                "brier": safe_ratio(squares, num_scored),
            }
        # The whole data decides which metrics exist; a resample without both classes still gives NaN.
        return {name: value for name, value in found.items() if has_both or name not in BOTH_CLASSES}

    return values


def safe_ratio(part: Values, whole: Values, whole_of_all: ArrayLike = 1) -> Values:
    """Divides; NaN where the divisor is 0, or 0 where that of the whole data is 0 too."""
    undefined = np.where(np.asarray(whole_of_all) > 0, np.nan, 0.0)
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), undefined)


def measure_slices(
    outcomes: Outcomes, fields: Mapping[str, Sequence[str]], metrics: Sequence[str], *, num_resamples: int = 1000
) -> dict[Slice, dict[str, Metric]]:
    """Computes metrics for each value of each field, all on the same resamples of groups.

    Args:
        fields: By name the value of each row [N]; an empty one belongs to no slice.
        metrics: Those to compute; a slice of one class alone has no `macro_f1`.
    """
    statistics, sizes = {}, {}
    for name, values in fields.items():
        column = np.array(values, object)
        for value in filter(None, dict.fromkeys(values)):
            rows = column == value
            part = outcomes.select(rows, keep_groups=True)
            part.scores[:] = np.nan  # ranking metrics are not computed for slices
            statistics[name, value] = classification_statistic(part)
            sizes[name, value] = int(rows.sum())

    def all_slices(weights: Values) -> dict[str, Values]:
        found: dict[str, Values] = {}
        with np.errstate(invalid="ignore", divide="ignore"):  # NaN where a resample has no row of a slice
            for place, part in enumerate(statistics.values()):
                scored = part(weights)
                has_both = "balanced_accuracy" in scored
                found |= {f"{place} {name}": scored[name] for name in metrics if has_both or name != "macro_f1"}
        return found

    counts = {f"{place} {name}": size for place, size in enumerate(sizes.values()) for name in metrics}
    kinds = {key: CLASSIFICATION[key.partition(" ")[2]] for key in counts}
    scored = bootstrap(outcomes.groups, all_slices, kinds=kinds, n=counts, num_resamples=num_resamples).metrics
    return {
        part: {name: scored[f"{place} {name}"] for name in metrics if f"{place} {name}" in scored}
        for place, part in enumerate(statistics)
    }


def score_validation(scores: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Computes the classification metrics at threshold 0.5, without intervals, and the loss.

    Args:
        scores: P(hallucinated) [N].
        labels: 1 for hallucinated [N].
    """
    found, gold = np.asarray(scores, np.float64), np.asarray(labels, np.int8)
    groups = Groups(np.arange(len(gold)), len(gold))
    outcomes = Outcomes(gold=gold, called=(found >= 0.5).astype(np.int8), scores=found, groups=groups)
    statistic = classification_statistic(outcomes)
    metrics = {name: float(value[0]) for name, value in statistic(np.ones((1, len(gold)))).items()}
    right = np.where(gold == 1, found, 1 - found)
    metrics["loss"] = float(-np.log(np.maximum(right, 1e-12)).mean())
    return metrics
