"""Simple detectors that stand beside a model, each fitted on labelled rows as the model was.

A baseline without a fitted threshold is weak for no fault of its own. So word overlap takes its threshold from the
rows that the model's came from, or from rows that are named for it. Named rows also fit boosted trees on counted
features, and a second threshold of the model.

>>> from faithkit.records import Example, Prediction
>>> def row(id, response, label):
...     return Example(id=id, source="a", split="test", group=id, knowledge="red fox", response=response, label=label)
>>> rows = [row("1", "red fox", "faithful"), row("2", "red cat", "hallucinated")]
>>> said = {row.id: Prediction(id=row.id, label=row.label) for row in rows}
>>> [(one.name, one.fitted_on) for one in beside(rows, said, Fitting(rows=rows, name="2 rows"))][:3]
[('majority', 'the tested rows'), ('word overlap', '2 rows'), ('response length', '2 rows')]
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from faithkit.baselines.counted_features import CountedFeatures, fit_counted_features
from faithkit.baselines.word_overlap import (
    fit_length,
    fit_overlap,
    length_predictions,
    overlap_predictions,
    random_predictions,
)
from faithkit.calibration.thresholds import choose_threshold
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction

AIMS = ("macro_f1", "f1")  # of a report's headline by label, and of one by spans
HEADLINE = AIMS[0]
NUM_FOLDS = 5  # where a thing is fitted and judged on the same rows
BASELINES, OVERLAP = "baselines", "word_overlap"  # keys of a model's folder
MEDIAN = "nothing: the median of the tested rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineData:
    """Labelled rows for baselines to fit on.

    Args:
        rows: The rows; none where only thresholds are at hand.
        name: The rows, as a table names them.
        thresholds: Of word overlap, fitted elsewhere, by aim: a model's folder has those of its validation rows.
        learn: Boosted trees learn from the rows too; validation rows of a training are too few for that.
        counted: Trees that were fitted on the model's training rows, with a threshold on its validation rows.
        own: The model's own predictions of the rows, to fit its threshold on them as well.
    """

    rows: Sequence[Example] = ()
    name: str = ""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    learn: bool = False
    counted: CountedFeatures | None = None
    own: Mapping[str, Prediction] = field(default_factory=dict)

    def overlap(self, aim: str = HEADLINE) -> float | None:
        """The threshold of word overlap; None where nothing tells it."""
        return self.thresholds.get(aim) if self.thresholds else fit_overlap(self.rows, aim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A simple detector's predictions of the tested rows.

    Args:
        key: Begins the names of its metrics.
        fitted_on: The rows that it was fitted on, as a table names them.
        threshold: Of the model's own scores, where that is all that was fitted.
    """

    key: str
    name: str
    predictions: Mapping[str, Prediction]
    fitted_on: str
    threshold: float | None = None


def baseline_thresholds(rows: Sequence[Example]) -> dict[str, Any]:
    """Makes what a model's folder keeps below `origin`: thresholds of word overlap on the rows of the model's own."""
    known = [row for row in rows if row.label]
    return {BASELINES: {OVERLAP: {aim: fit_overlap(known, aim) for aim in AIMS} | {"num_rows": len(known)}}}


def read_baseline_thresholds(origin: Mapping[str, Any]) -> BaselineData:
    """Reads what `fitted_origin` gave; a folder of before, or another's, has no thresholds."""
    kept: Any = origin.get(BASELINES)
    found: Any = kept.get(OVERLAP) if isinstance(kept, Mapping) else None
    if not isinstance(found, Mapping):
        return BaselineData()
    values = {aim: found.get(aim) for aim in AIMS}
    thresholds = {aim: float(value) for aim, value in values.items() if isinstance(value, int | float)}
    return BaselineData(thresholds=thresholds, name=f"{found.get('num_rows')} validation rows of the training")


def predict_baselines(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], fitting: BaselineData
) -> list[Baseline]:
    """Gives the baselines of a test set, the plainest first; with `fitting.own` the model at another threshold, too."""
    positives = sum(example.label == HALLUCINATED for example in examples)
    commoner = HALLUCINATED if 2 * positives > len(examples) else FAITHFUL
    always = {example.id: Prediction(id=example.id, label=commoner) for example in examples}
    found = [Baseline(key="majority", name="majority", predictions=always, fitted_on="the tested rows")]
    threshold = fitting.overlap()
    shares = overlap_predictions(examples, threshold=threshold)
    where = MEDIAN if threshold is None else fitting.name
    found.append(Baseline(key="overlap", name="word overlap", predictions=shares, fitted_on=where))
    rule = fit_length(fitting.rows)  # a folder keeps none: the lengths of other data would say nothing of these
    lengths = length_predictions(examples, rule)
    where = MEDIAN if rule is None else fitting.name
    found.append(Baseline(key="length", name="response length", predictions=lengths, fitted_on=where))
    coin = random_predictions(examples)
    found.append(Baseline(key="random", name="random", predictions=coin, fitted_on="nothing: a coin for each row"))
    if fitting.learn and (counted := fit_counted_features_by_folds(fitting.rows)) is not None:
        said = counted.predictions(examples)
        found.append(Baseline(key="counted", name="counted features", predictions=said, fitted_on=fitting.name))
    if fitting.counted is not None:
        where = f"the training rows, its threshold on {fitting.name}"
        said = fitting.counted.predictions(examples)
        found.append(Baseline(key="counted", name="counted features", predictions=said, fitted_on=where))
    if fitting.own and (moved := refit_threshold(predictions, fitting)) is not None:
        found.append(moved)
    return found


def folds_by_group(rows: Sequence[Example]) -> Iterator[tuple[list[Example], list[Example]]]:
    """Parts rows into folds of whole groups; gives the other rows and the fold's own, for each that has any."""
    place = {group: number % NUM_FOLDS for number, group in enumerate(sorted({row.group for row in rows}))}
    for fold in range(min(NUM_FOLDS, len(place))):
        yield [row for row in rows if place[row.group] != fold], [row for row in rows if place[row.group] == fold]


def fit_counted_features_by_folds(rows: Sequence[Example]) -> CountedFeatures | None:
    """Fits boosted trees and their threshold on the same rows; None where they hold too little of a class.

    The trees learn from all rows. Their threshold is chosen on scores of rows that they had not seen: folds by group.
    """
    known = [row for row in rows if row.label]
    model = fit_counted_features(known)
    if model is None:
        return None
    scores: list[float] = []
    gold: list[bool] = []
    for others, held in folds_by_group(known):
        labels = [row.label == HALLUCINATED for row in others]
        if len(set(labels)) < 2:
            continue
        trees = CountedFeatures.fit([row.knowledge for row in others], [row.response for row in others], labels)
        scores += trees.score([row.knowledge for row in held], [row.response for row in held]).tolist()
        gold += [row.label == HALLUCINATED for row in held]
    return replace(model, threshold=choose_threshold(scores, gold, HEADLINE).value) if scores else model


def refit_threshold(predictions: Mapping[str, Prediction], fitting: BaselineData) -> Baseline | None:
    """Labels the model's predictions anew, at the threshold that is best on the rows; None where scores are missing."""
    known = [row for row in fitting.rows if row.label]
    scores = [fitting.own[row.id].score for row in known]
    if not known or any(score is None for score in [*scores, *(one.score for one in predictions.values())]):
        return None
    gold = [row.label == HALLUCINATED for row in known]
    threshold = choose_threshold(np.array(scores, np.float64), gold, HEADLINE).value
    moved = {id_: _relabel(prediction, threshold) for id_, prediction in predictions.items()}
    name, where = "model, threshold fitted", f"{fitting.name}: {threshold:.4f}"
    return Baseline(key="refitted", name=name, predictions=moved, fitted_on=where, threshold=threshold)


def _relabel(prediction: Prediction, threshold: float) -> Prediction:
    if prediction.label == UNPARSED:
        return prediction
    score = prediction.score
    assert score is not None
    return replace(prediction, label=HALLUCINATED if score >= threshold else FAITHFUL, spans=())
