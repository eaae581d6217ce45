"""Calibration of scores: temperature, decision threshold, logistic regression, expected calibration error.

Fit temperature and threshold on validation data, never on the test set. A temperature changes no ranking (AUROC stays);
a threshold changes no score (ECE stays). `Calibration` is stored with a critic's weights.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from faithkit.records import FAITHFUL, HALLUCINATED, LABELS, Prediction
from faithkit.settings.check import options
from faithkit.settings.types import ARGMAX, Hint, Range, parse_target_precision

NUM_BINS = 15
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
Floats = NDArray[np.float64]
IS_HALLUCINATED = tuple(label == HALLUCINATED for label in LABELS)  # of the classes, those that mean hallucinated
ABOVE_ALL_SCORES = float(np.nextafter(1, 2))  # the threshold of a fit that calls nothing, not even a probability of 1
MARGIN = 1e-5  # of log-odds, above their rounding in fp32
ResponseThreshold = Annotated[float, Range(ge=0, le=ABOVE_ALL_SCORES), Hint("use a number from 0 to 1")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperature:
    """A fitted temperature, the negative log-likelihood before and after, and a note if it is not optimal."""

    value: float
    nll_before: float
    nll_after: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Call hallucinated what scores `value` or more; the figures are those on the data it was chosen on.

    `reached` is False where the aim cannot be met; `note` then says what was chosen instead.
    """

    value: float
    aim: str
    reached: bool
    precision: float
    recall: float
    f1: float
    macro_f1: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """The rows that score in [low, high): their mean score and the share that is hallucinated."""

    low: float
    high: float
    count: int
    mean_score: float
    hallucinated: float


def logit(scores: ArrayLike) -> Floats:
    """Computes the log-odds of probabilities, finite at 0 and 1 too."""
    clipped = np.clip(np.asarray(scores, np.float64), 1e-12, 1 - 1e-12)
    return np.log(clipped) - np.log1p(-clipped)


def apply_temperature(logits: ArrayLike, temperature: float) -> Floats:
    """Computes P(hallucinated) = sigmoid(logit / T) from log-odds; T above 1 softens it."""
    return sigmoid(np.asarray(logits, np.float64) / temperature)


def predict_by_threshold(ids: Iterable[str], scores: Iterable[float], threshold: float) -> dict[str, Prediction]:
    """Predicts hallucinated from this score on, by id."""
    return {
        id_: Prediction(id=id_, label=HALLUCINATED if score >= threshold else FAITHFUL, score=float(score))
        for id_, score in zip(ids, scores, strict=True)
    }


def fit_temperature(logits: ArrayLike, gold: ArrayLike) -> Temperature:
    """Fits the temperature T that minimises the mean of -log sigmoid(+-logit / T) (Guo et al. 2017, section 4.2).

    The loss is convex in 1 / T, so its slope is bisected. Where every row is on its right side the loss has no minimum
    and sharpening without end would look best: T then stays 1.

    scikit-learn's `CalibratedClassifierCV` finds the same T (equal to 1e-7), but it calibrates classifiers and not
    log-odds, does not expose T, and does not report a missing optimum.

    Args:
        logits: Log-odds of hallucinated [N]: the difference of two logits, or `logit(score)`.
        gold: 1 where hallucinated [N].
    """
    values, labels = _checked(logits, gold)
    margins = np.where(labels == 1, values, -values)

    def loss(inverse: float) -> float:
        return float(np.logaddexp(0.0, -inverse * margins).mean())

    def slope(inverse: float) -> float:
        return float(-(margins * np.exp(-np.logaddexp(0.0, inverse * margins))).mean())

    if margins.min() >= 0:
        note = "every row is on its right side, so no temperature is best: kept at 1"
        return Temperature(value=1.0, nll_before=loss(1.0), nll_after=loss(1.0), note=note)
    low, high, note = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE, ""
    if slope(low) >= 0 or slope(high) <= 0:
        low = high = low if slope(low) >= 0 else high
        note = f"the optimum lies outside {MIN_TEMPERATURE}..{MAX_TEMPERATURE}: kept at the bound"
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return Temperature(value=1 / high, nll_before=loss(1.0), nll_after=loss(high), note=note)


def choose_threshold(scores: ArrayLike, gold: ArrayLike, aim: str = "macro_f1") -> Threshold:
    """Chooses the threshold that serves an aim best on labelled data; of equally good ones, the one nearest to 0.5.

    Args:
        scores: P(hallucinated) [N].
        gold: 1 where hallucinated [N].
        aim: `f1` (of the hallucinated class), `macro_f1`, or `precision>=0.9` (any number above 0, at most 1): the
            highest recall with at least that precision. Where no threshold has it, the most precise one is chosen.
            `argmax` stays at 0.5, for validation data that are too few or too different from the test data.

    Raises:
        UserError: An unknown aim.
    """
    wanted = parse_target_precision(aim)
    values, labels = _checked(scores, gold)
    positives, total = int(labels.sum()), len(values)
    if aim == ARGMAX:
        return _threshold(0.5, aim, values, labels, "")
    if positives in (0, total):
        note = f"every row is {'hallucinated' if positives else 'faithful'}, so no threshold is best: 0.5 is taken"
        return _threshold(0.5, aim, values, labels, note)
    descending = np.argsort(-values, kind="stable")
    ends = np.flatnonzero(np.diff(values[descending], append=-np.inf))  # rows of one score are called together
    # One threshold for each number of scores called, none to all: midway between descending neighbours.
    distinct = values[descending][ends]
    middles = (distinct[:-1] + distinct[1:]) / 2
    middles = np.where(middles > distinct[1:], middles, distinct[:-1])  # the middle of close ones falls on the lower
    top = (distinct[0] + 1) / 2
    none = top if top > distinct[0] else np.nextafter(distinct[0], np.inf)
    cuts = np.concatenate([[none], middles, [min(distinct[-1], distinct[-1] / 2)]])
    called = np.concatenate([[0], ends + 1])  # by each cut
    right = np.concatenate([[0], np.cumsum(labels[descending])[ends]])
    precision, recall = right / np.maximum(called, 1), right / positives
    f1, macro_f1 = _f1(called, right, positives, total)
    note = ""
    if wanted is None:
        best = _best(f1 if aim == "f1" else macro_f1, np.zeros(len(cuts)))
    elif (meets := (called > 0) & (precision >= wanted)).any():
        best = _best(np.where(meets, recall, -1.0), precision)
    else:
        best = _best(precision, recall)
        note = f"no threshold has {aim}: the most precise one is taken"
    nearest = best[np.argmin(np.abs(cuts[best] - 0.5))]
    return _threshold(float(cuts[nearest]), aim, values, labels, note)


def _threshold(value: float, aim: str, scores: Floats, gold: NDArray[np.int64], note: str) -> Threshold:
    called, right, positives = int((scores >= value).sum()), int(gold[scores >= value].sum()), int(gold.sum())
    f1, macro_f1 = _f1(np.array(called), np.array(right), positives, len(gold))
    return Threshold(
        value=value,
        aim=aim,
        reached=not note,
        precision=right / max(called, 1),
        recall=right / max(positives, 1),
        f1=float(f1),
        macro_f1=float(macro_f1),
        note=note,
    )


def _f1(called: NDArray[Any], right: NDArray[Any], positives: int, total: int) -> tuple[Floats, Floats]:
    """Computes F1 and macro F1 by threshold, from the rows `called` hallucinated and those called so rightly."""
    faithful_right = (total - called) - (positives - right)
    f1 = 2 * right / np.maximum(called + positives, 1)
    faithful_f1 = 2 * faithful_right / np.maximum((total - called) + (total - positives), 1)
    return f1, (f1 + faithful_f1) / 2


def _best(first: Floats, second: Floats) -> NDArray[np.intp]:
    """Finds the positions of the highest `first`, and among these of the highest `second`."""
    places = np.flatnonzero(first == first.max())
    return places[second[places] == second[places].max()]


def assign_bins(scores: ArrayLike, num_bins: int = NUM_BINS) -> NDArray[np.intp]:
    """Finds the equal-width bin that each score falls in; 1.0 falls in the last."""
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    places = np.searchsorted(edges, np.asarray(scores, np.float64), side="right") - 1
    return np.minimum(places, num_bins - 1)


def reliability(scores: ArrayLike, gold: ArrayLike, num_bins: int = NUM_BINS) -> list[ReliabilityBin]:
    """Builds the table behind the calibration error: the bins that hold rows (a reliability diagram in numbers)."""
    values, labels = _checked(scores, gold)
    places = assign_bins(values, num_bins)
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    return [
        ReliabilityBin(
            low=float(edges[place]),
            high=float(edges[place + 1]),
            count=int((inside := places == place).sum()),
            mean_score=float(values[inside].mean()),
            hallucinated=float(labels[inside].mean()),
        )
        for place in np.unique(places)
    ]


def calibration_error(scores: ArrayLike, gold: ArrayLike) -> float:
    """Computes the expected calibration error: sum over bins of share * |mean score - share hallucinated|.

    Naeini et al. 2015; equal-width bins. It depends on the number of bins, and a constant score at the base rate has an
    error of 0: read it together with AUROC or F1.
    """
    rows = reliability(scores, gold)
    return sum(row.count * abs(row.mean_score - row.hallucinated) for row in rows) / sum(row.count for row in rows)


def _checked(values: ArrayLike, gold: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    numbers, labels = np.asarray(values, np.float64), np.asarray(gold, np.int64)
    if numbers.ndim != 1 or numbers.shape != labels.shape or not len(numbers):
        raise ValueError(f"needs as many values as labels, at least one; got shapes {numbers.shape}, {labels.shape}")
    if not np.isfinite(numbers).all() or not np.isin(labels, (0, 1)).all():
        raise ValueError("values must be finite and labels 0 or 1")
    return numbers, labels


@options()
class ScoreCalibration:
    """The temperature and the threshold of a critic.

    Args:
        temperature: Divides the log-odds; above 1 it moves probabilities towards 1/2.
        threshold: A response is called hallucinated from this probability on.
        aim: The metric that the threshold was chosen for.
    """

    temperature: Annotated[float, Range(ge=1e-3, le=1e3)] = 1.0  # far beyond what a fit gives
    threshold: ResponseThreshold = 0.5
    aim: str = "none: nothing was fitted"

    @classmethod
    def fit(cls, odds: NDArray[Any], labels: NDArray[Any], aim: str) -> tuple["ScoreCalibration", dict[str, Any]]:
        """Fits both on the log-odds of labelled validation rows; also gives what to report of the fit."""
        temperature = fit_temperature(odds, labels)
        scores = apply_temperature(odds, temperature.value)
        threshold = choose_threshold(scores, labels, aim)
        report = {
            "temperature": asdict(temperature),
            "threshold": asdict(threshold),
            "ece_before": calibration_error(apply_temperature(odds, 1.0), labels),
            "ece_after": calibration_error(scores, labels),
            "num_rows": len(labels),
        }
        return cls(temperature=temperature.value, threshold=threshold.value, aim=aim), report

    def line(self, odds: NDArray[Any]) -> tuple[float, float]:
        """Returns slope and bias that move the threshold to a probability of 0.5, with the same labels of these rows.

        P = sigmoid(slope * log-odds + bias): the slope is 1 / temperature, the bias subtracts the threshold's log-odds.
        """
        scaled, called = odds / self.temperature, self.scores(odds) >= self.threshold
        lowest = scaled[~called].max(initial=-np.inf) + MARGIN  # matters where probabilities round to 0 or 1
        highest = scaled[called].min(initial=np.inf) - MARGIN
        return 1 / self.temperature, -float(np.clip(logit(self.threshold), lowest, highest))

    def scores(self, odds: NDArray[Any]) -> NDArray[np.float64]:
        """P(hallucinated) of each row, from its log-odds."""
        return apply_temperature(odds, self.temperature)

    def label(self, score: float, threshold: float | None = None) -> str:
        """hallucinated or faithful, by the stored threshold or by another."""
        return HALLUCINATED if score >= (self.threshold if threshold is None else threshold) else FAITHFUL

    def predictions(self, ids: Sequence[str], scores: Iterable[float]) -> list[Prediction]:
        """A prediction for each probability."""
        return [Prediction(id=i, label=self.label(s), score=float(s)) for i, s in zip(ids, scores, strict=True)]


def log_odds(logits: NDArray[Any], hallucinated: Sequence[bool] = IS_HALLUCINATED) -> NDArray[np.float64]:
    """Log-odds of hallucinated from the logits of each row [rows, classes].

    Args:
        hallucinated: Which classes mean it; the others mean faithful.
    """
    values, chosen = np.asarray(logits, np.float64), np.array(hallucinated)
    return np.logaddexp.reduce(values[:, chosen], axis=1) - np.logaddexp.reduce(values[:, ~chosen], axis=1)


def is_unsure(label: str | None, probability: float, abstain_at: float | None) -> bool:
    """Checks whether a label is less likely to be right than required; None requires nothing."""
    confidence = probability if label == HALLUCINATED else 1 - probability
    return abstain_at is not None and confidence < abstain_at


def drop_unsure_labels(predictions: Iterable[Prediction], abstain_at: float | None) -> Iterator[Prediction]:
    """Takes label and spans from predictions that are unsure; their probability stays.

    Predictions without a probability keep their label: nothing says how sure they are.
    """
    for prediction in predictions:
        label, score = prediction.label, prediction.score
        unsure = label in LABELS and score is not None and is_unsure(label, score, abstain_at)
        yield replace(prediction, label=None, spans=()) if unsure else prediction


def fit_line(
    features: Floats,
    gold: NDArray[Any],
    row_weights: Floats | None = None,
    indicators: Floats | None = None,
    *,
    leads: bool = True,
) -> tuple[tuple[float, ...], float, str]:
    """Fits a logistic regression of gold labels (Platt 1999); keeps the first feature unchanged if it cannot be fitted.

    Args:
        features: [rows, features].
        gold: 0 or 1 [rows].
        row_weights: Weight of each row [rows]; None weighs all equally.
        indicators: 1 for the dataset of a row [rows, datasets]: each dataset gets a separate bias, and the mean bias is
            returned. Otherwise the features would also be used to distinguish datasets.
        leads: The first feature is the log-odds of a detector; its ranking within datasets must not be reversed.

    Returns:
        A weight for each feature, the bias, and the reason if nothing was fitted.
    """
    from sklearn.linear_model import LogisticRegression

    unchanged = (1.0, *(0.0 for _ in range(features.shape[1] - 1)))
    if len(np.unique(gold)) < 2:
        return unchanged, 0.0, "the labelled rows have one class only, so nothing was fitted"
    columns = features if indicators is None else np.concatenate([features, indicators], axis=1)
    fitted = LogisticRegression(C=1.0, max_iter=1000).fit(columns, gold, row_weights)
    weights, biases = np.split(fitted.coef_[0], [features.shape[1]])
    if leads:  # the covariance of the scores with the log-odds, within datasets
        member = np.ones((len(features), 1)) if indicators is None else indicators
        scores = (features @ weights, features[:, 0])
        first, second = (values - member @ (values @ member / member.sum(axis=0)) for values in scores)
        if float(first @ second) <= 0:
            return unchanged, 0.0, "the scores do not rise with the labels, so nothing was fitted"
    bias = float(fitted.intercept_[0]) + (float(biases.mean()) if len(biases) else 0.0)
    return tuple(float(weight) for weight in weights), bias, ""


def linear(evidence: Floats, weights: tuple[float, ...]) -> Floats:
    """Computes the weighted sum of features [rows, features]; the last weight is the bias.

    It sums column by column, because a matrix product sums a single row in another order than many rows, and a score
    would depend on its batch in the last digit.
    """
    total = np.zeros(len(evidence))
    for column, weight in zip(evidence.T, weights[:-1], strict=True):
        total += column * weight
    return total + weights[-1]


def sigmoid(values: Any) -> Floats:
    """Converts log-odds to probabilities."""
    return np.exp(-np.logaddexp(0.0, -np.asarray(values, np.float64)))
