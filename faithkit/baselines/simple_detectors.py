"""Simple detectors that a model is compared with, each fitted on labelled rows as the model was.

A baseline without a fitted threshold is unfairly weak. So word overlap takes its threshold from the rows that the
model's came from, or from given rows. Given rows also fit boosted trees on word counts, and a second threshold of
the model.

>>> from faithkit.records import Example, Prediction
>>> def row(id, response, label):
...     return Example(id=id, source="a", split="test", group=id, knowledge="red fox", response=response, label=label)
>>> rows = [row("1", "red fox", "faithful"), row("2", "red cat", "hallucinated")]
>>> [(one.name, one.fitted_on) for one in predict_baselines(rows, BaselineData(rows=rows, name="2 rows"))][:3]
[('majority', 'the tested rows'), ('word overlap', '2 rows'), ('response length', '2 rows')]
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from faithkit.baselines.word_features import (
    CountedFeatures,
    LengthRule,
    fit_counted_features,
    fit_length,
    fit_overlap,
    length_predictions,
    overlap_predictions,
)
from faithkit.calibration import choose_threshold, predict_by_threshold
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.settings.config_files import data_path, display_name

AIMS = ("macro_f1", "f1")  # of a report's headline by label, and of one by spans
HEADLINE = AIMS[0]
NUM_FOLDS = 5  # for fitting and testing on the same rows
BASELINES, OVERLAP, LENGTH = "baselines", "word_overlap", "response_length"  # keys of a model's folder
MAJORITY = "majority"  # the key of the constant
REFITTED = "refitted"  # the key of the model at another threshold
MEDIAN = "the tested rows without labels, their median"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineData:
    """Labelled rows to fit baselines on, and what was fitted before.

    Args:
        rows: The rows; empty where only thresholds are known.
        name: The rows' name in tables.
        sources: The display names of their datasets.
        fits_tested: The tested rows are of these datasets; a threshold from others may be far off.
        thresholds: Thresholds of word overlap by aim, as a model's folder keeps them of its validation rows.
        length: The rule of response length, from the same place.
        learn: Fits boosted trees on the rows too; the validation rows of a training are too few for that.
        counted: Trees fitted on the model's training rows, with a threshold from its validation rows.
        model_predictions: The model's predictions of the rows, to fit its threshold on them as well.
    """

    rows: Sequence[Example] = ()
    name: str = ""
    sources: frozenset[str] = frozenset()
    fits_tested: bool = False
    thresholds: Mapping[str, float] = field(default_factory=dict)
    length: LengthRule | None = None
    learn: bool = False
    counted: CountedFeatures | None = None
    model_predictions: Mapping[str, Prediction] = field(default_factory=dict)

    def fit_overlap(self, aim: str = HEADLINE) -> float | None:
        """Returns the threshold of word overlap, fitted on the rows if it is not known; None without rows."""
        return self.thresholds.get(aim) if self.thresholds else fit_overlap(self.rows, aim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A simple detector's predictions of the tested rows, in their order.

    Args:
        key: Begins the names of its metrics.
        fitted_on: The rows that it was fitted on, for tables.
        threshold: Of the model's scores, where only this was fitted.
        facts: What was chosen for it, for metrics.json.
    """

    key: str
    name: str
    predictions: Mapping[str, Prediction]
    fitted_on: str
    threshold: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def baseline_thresholds(rows: Sequence[Example]) -> dict[str, Any]:
    """Fits word overlap and response length on the model's validation rows, as its folder keeps them below `origin`."""
    known = [row for row in rows if row.label]
    overlap, rule = {aim: fit_overlap(known, aim) for aim in AIMS}, fit_length(known)
    facts = {"num_rows": len(known), "sources": sorted({row.source for row in known})}
    return {BASELINES: {OVERLAP: overlap | facts, LENGTH: rule._asdict() if rule else None}}


def source_names(sources: Iterable[str], config: Mapping[str, Any] | None) -> frozenset[str]:
    """Names the datasets of a training's rows for display, by its configuration."""
    path = data_path((config or {}).get("data") or {})
    return frozenset(display_name(source, path) for source in sources)


def read_baseline_thresholds(origin: Mapping[str, Any]) -> BaselineData:
    """Reads what `baseline_thresholds` wrote; empty where a folder of another tool has no thresholds."""
    kept: Any = origin.get(BASELINES)
    found: Any = kept.get(OVERLAP) if isinstance(kept, Mapping) else None
    if not isinstance(found, Mapping):
        return BaselineData()
    values = {aim: found.get(aim) for aim in AIMS}
    thresholds = {aim: float(value) for aim, value in values.items() if isinstance(value, int | float)}
    sources, rule = source_names(found.get("sources") or (), origin.get("config")), kept.get(LENGTH)
    on = f" on {', '.join(sorted(sources))}" if sources else ""
    return BaselineData(
        thresholds=thresholds,
        length=LengthRule(float(rule["threshold"]), bool(rule["longer"])) if rule else None,
        name=f"{found.get('num_rows')} validation rows of the training{on}",
        sources=sources,
    )


def predict_baselines(
    examples: Sequence[Example], data: BaselineData, predictions: Mapping[str, Prediction] | None = None
) -> list[Baseline]:
    """Predicts the tested rows with each baseline, the simplest first.

    Args:
        predictions: The model's, which get another threshold if `data` has its predictions of the fitting rows.
    """
    threshold, rule = data.fit_overlap(), data.length or fit_length(data.rows)
    overlap, length = overlap_predictions(examples, threshold=threshold), length_predictions(examples, rule)
    ids = [example.id for example in examples]
    coins = predict_by_threshold(ids, (Random(f"coin:{id_}").random() for id_ in ids), 0.5)  # the same in every run
    found = [
        (MAJORITY, "majority", majority_predictions(examples), "the tested rows"),
        ("overlap", "word overlap", overlap, MEDIAN if threshold is None else data.name),
        ("length", "response length", length, MEDIAN if rule is None else data.name),
        ("random", "random", coins, "nothing: a coin for each row"),
    ]
    if data.learn and (counted := fit_counted_features_by_folds(data.rows)) is not None:
        found.append(("counted", "boosted trees", counted.predictions(examples), data.name))
    if data.counted is not None:
        found.append(("counted", "boosted trees", data.counted.predictions(examples), data.name))
    baselines = [Baseline(key=key, name=name, predictions=rows, fitted_on=on) for key, name, rows, on in found]
    if data.model_predictions and predictions and (refitted := refit_threshold(predictions, data)) is not None:
        baselines.append(refitted)
    return baselines


def majority_predictions(examples: Sequence[Example]) -> dict[str, Prediction]:
    """Gives every example the more frequent label of all; faithful if both are equally frequent."""
    positives = sum(example.label == HALLUCINATED for example in examples)
    label = HALLUCINATED if 2 * positives > len(examples) else FAITHFUL
    return {example.id: Prediction(id=example.id, label=label) for example in examples}


def folds_by_group(rows: Sequence[Example]) -> Iterator[tuple[list[Example], list[Example]]]:
    """Divides rows into folds of whole groups; yields the other rows and the fold's rows."""
    place = {group: number % NUM_FOLDS for number, group in enumerate(sorted({row.group for row in rows}))}
    for fold in range(min(NUM_FOLDS, len(place))):
        yield [row for row in rows if place[row.group] != fold], [row for row in rows if place[row.group] == fold]


def fit_counted_features_by_folds(rows: Sequence[Example]) -> CountedFeatures | None:
    """Fits boosted trees and their threshold on the same rows; None if they hold too few of a class.

    The trees are fitted on all rows. Their threshold is chosen on scores of trees that had not seen the row: folds by
    group.
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


def refit_threshold(predictions: Mapping[str, Prediction], data: BaselineData) -> Baseline | None:
    """Relabels the model's predictions at the threshold that is best on the rows; None if scores are missing."""
    known = [row for row in data.rows if row.label]
    scores = [data.model_predictions[row.id].score for row in known]
    if not known or any(score is None for score in [*scores, *(row.score for row in predictions.values())]):
        return None
    gold = [row.label == HALLUCINATED for row in known]
    threshold = choose_threshold(np.array(scores, np.float64), gold, HEADLINE).value
    moved = dict(predictions)
    for id_, one in predictions.items():
        if one.label != UNPARSED:
            assert one.score is not None
            moved[id_] = replace(one, label=HALLUCINATED if one.score >= threshold else FAITHFUL, spans=())
    name, fitted_on = "model, threshold fitted", f"{data.name}: {threshold:.4f}"
    return Baseline(key=REFITTED, name=name, predictions=moved, fitted_on=fitted_on, threshold=threshold)


def cross_fit_baselines(
    rows: Sequence[Example], predictions: Mapping[str, Prediction] | None = None, *, learn: bool = True
) -> tuple[dict[str, dict[str, Prediction]], dict[str, str]]:
    """Predicts each fold of rows by baselines that were fitted on the other folds, by key, with the baselines' names.

    Baselines that some fold lacks are left out. The majority is one label for all rows: labels that differ by fold
    are no constant, and would have a macro-F1 that no constant can reach.

    Args:
        predictions: A model's, which get another threshold, fitted in the same way.
        learn: Also fits boosted trees, which need scikit-learn.
    """
    found, names = {MAJORITY: majority_predictions(rows)}, {MAJORITY: "majority"}
    known = predictions or {}
    for others, held in folds_by_group(rows):
        of_model = {row.id: known[row.id] for row in others if row.id in known}
        data = BaselineData(rows=others, name="other folds", learn=learn, model_predictions=of_model)
        for one in predict_baselines(held, data, {row.id: known[row.id] for row in held if row.id in known}):
            if one.key != MAJORITY:
                found.setdefault(one.key, {}).update(one.predictions)
                names[one.key] = one.name
    return {key: of_rows for key, of_rows in found.items() if len(of_rows) == len(rows)}, names
