"""The judges of generated responses: detectors of other kinds beside the critic, and how each errs on labelled rows.

`benchmark.judges` names them: `word_overlap` and `counted_features`, which learn from the labelled rows, `nli:NAME` for
any NLI model, or the folder of another detector.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_modules.build import dataset_of, read_block, read_excluded
from faithkit.detector import Detector
from faithkit.entailment import ENTAILMENT, Entailment
from faithkit.errors import UserError
from faithkit.evaluation.baselines import fit_overlap, overlap_predictions
from faithkit.evaluation.cheap_baselines import CountedFeatures
from faithkit.evaluation.fitted_baselines import fit_counted_by_folds, folds_by_group
from faithkit.evaluation.responses.judge_error import JudgeError
from faithkit.evaluation.responses.judges import CRITIC, Judge
from faithkit.files.model_folder import sidecar_of
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from workflows.detectors import load_detector
from workflows.entailment import load_entailment

OVERLAP, COUNTED, NLI = "word_overlap", "counted_features", "nli:"
Fit = Callable[[Sequence[Example]], Detector]
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Rows that people labelled, as a table names them."""

    rows: Sequence[Example]
    name: str


def read_labelled(block: Mapping[str, Any]) -> LabelledRows | None:
    """Reads the rows of `benchmark.judge_labels`, of the critic's datasets those alone that its training left out."""
    sets, critic = block.get("judge_labels") or [], block["critic"]
    if not sets:
        return None
    trained_on = _training(critic)
    rows, names = [], []
    for number, one in enumerate(sets):
        found, name = [example for example in read_block(one) if example.label], dataset_of(one)
        kept, how = found, "" if trained_on or not critic else " (not known whether the critic was trained on them)"
        if trained_on and name in _datasets(trained_on):
            excluded = read_excluded(trained_on["exclude"])
            kept, how = [e for e in found if excluded.covers(e)], " that the critic's training left out"
        if not kept:
            hint = "train the critic with data.exclude=[{dataset, path}] of what it will judge, or name other rows"
            raise UserError(f"benchmark.judge_labels: the critic was trained on every row of {name}", hint=hint)
        log.info("judges are compared with %d of %d labelled rows of %s%s", len(kept), len(found), name, how)
        rows += [replace(example, id=f"{number}/{example.id}") for example in kept]
        names.append(f"{len(kept):,} rows of {name}{how}")
    return LabelledRows(rows, "; ".join(names))


def _training(checkpoint: str | None) -> Mapping[str, Any] | None:
    """The `data` block that a detector was trained with, where its folder tells."""
    sidecar = sidecar_of(checkpoint)
    data = (sidecar.origin.get("config") or {}).get("data") if sidecar else None
    return data if isinstance(data, Mapping) and "exclude" in data else None


def _datasets(data: Mapping[str, Any]) -> set[str]:
    """The datasets that a training read: its parts, and the audit where weak labels are made of it."""
    parts = data["parts"]
    blocks = parts.values() if isinstance(parts, Mapping) else parts
    read = [part for part in blocks if part.get("only") != "test"]
    names = {dataset_of(part) for part in read}
    return names | ({"audit"} if any(part.get("audit_path") for part in read) else set())


def error_of(detector: Detector, labelled: LabelledRows | None) -> JudgeError | None:
    """How a detector errs on the labelled rows."""
    if labelled is None:
        return None
    found = {prediction.id: prediction for prediction in detector.predict_examples(labelled.rows)}
    return JudgeError.of(labelled.rows, found, labelled.name)


def load_judges(block: Mapping[str, Any], labelled: LabelledRows | None, **options: Any) -> tuple[Judge, ...]:
    """Loads the judges of `benchmark.judges`, each with its error on the labelled rows.

    Args:
        options: precision and batch_tokens of the models.
    """
    judges: list[Judge] = []
    for number, name in enumerate(block.get("judges") or [], start=2):
        if name in (OVERLAP, COUNTED):
            judges.append(_fitted(name, fit_word_overlap if name == OVERLAP else fit_features, labelled))
            continue
        if name.startswith(NLI):
            detector: Detector = EntailmentJudge(load_entailment(name.removeprefix(NLI), **options))
        else:
            detector = load_detector(name, **options)
        key, shown = f"{CRITIC}_{number}", Path(name.removeprefix(NLI)).name
        judges.append(Judge(key=key, name=shown, detector=detector, error=error_of(detector, labelled)))
    return tuple(judges)


def _fitted(name: str, fit: Fit, labelled: LabelledRows | None) -> Judge:
    """A judge that learns from the labelled rows; its error is that on rows that it has not seen: folds by group."""
    if labelled is None:
        hint = "benchmark.judge_labels=[{dataset: audit, path: DIR}]"
        raise UserError(f"the judge {name} learns from labelled rows, and none are named", hint=hint)
    said: dict[str, Prediction] = {}
    for others, held in folds_by_group(labelled.rows):
        said |= {prediction.id: prediction for prediction in fit(others).predict_examples(held)}
    error = JudgeError.of(labelled.rows, said, f"{labelled.name}, each fitted on the other folds")
    return Judge(key=name, name=name.replace("_", " "), detector=fit(labelled.rows), error=error)


@dataclass(frozen=True, slots=True)
class WordOverlap:
    """Calls hallucinated what has too large a share of words that the knowledge lacks."""

    threshold: float | None

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Counts words; there is nothing to show a bar for."""
        if examples:
            yield from overlap_predictions(examples, threshold=self.threshold).values()


def fit_word_overlap(rows: Sequence[Example]) -> WordOverlap:
    """Word overlap with the threshold that is best on the rows."""
    return WordOverlap(fit_overlap(rows))


@dataclass(frozen=True, slots=True)
class FittedFeatures:
    """Boosted trees on counted features, learnt from labelled rows."""

    trees: CountedFeatures

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Counts and asks the trees; there is nothing to show a bar for."""
        yield from self.trees.predictions(examples).values()


def fit_features(rows: Sequence[Example]) -> FittedFeatures:
    """Boosted trees with the threshold that is best on the rows, by folds."""
    trees = fit_counted_by_folds(rows)
    if trees is None:
        hint = f"name more labelled rows, or leave out the judge {COUNTED}"
        raise UserError(f"{COUNTED}: {len(rows)} labelled rows teach too little", hint=hint)
    return FittedFeatures(trees)


@dataclass(frozen=True, slots=True)
class EntailmentJudge:
    """Calls hallucinated what an NLI model does not find entailed by the knowledge: another class is likelier."""

    model: Entailment

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Asks whether the knowledge entails each response; 1 - P(entailment) is the score."""
        found = self.model.entailment([e.knowledge for e in examples], [e.response for e in examples])
        for example, row in zip(examples, found, strict=True):
            label = FAITHFUL if int(row.argmax()) == ENTAILMENT else HALLUCINATED
            yield Prediction(id=example.id, label=label, score=float(1 - row[ENTAILMENT]))
