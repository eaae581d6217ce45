"""The judges of generated responses: detectors of other kinds beside the critic, and how each errs on labelled rows.

`benchmark.judges` names them: `word_overlap` and `counted_features`, which learn from the labelled rows, `nli:NAME` for
any NLI model, or the folder of another detector.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faithkit.baselines.counted_features import CountedFeatures
from faithkit.baselines.simple_detectors import fit_counted_features_by_folds, folds_by_group
from faithkit.baselines.word_overlap import fit_overlap, overlap_predictions
from faithkit.detector import Detector
from faithkit.entailment import ENTAILMENT, Entailment
from faithkit.errors import UserError
from faithkit.metrics.judge_error import JudgeError
from faithkit.metrics.responses.judges import CRITIC, ResponseJudge
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit_workflows.detectors.entailment import load_entailment
from faithkit_workflows.detectors.loading import load_detector
from faithkit_workflows.tables.labelled_rows import LabelledRows

OVERLAP, COUNTED, NLI = "word_overlap", "counted_features", "nli:"
Fit = Callable[[Sequence[Example]], Detector]


def error_of(detector: Detector, labelled: LabelledRows | None) -> JudgeError | None:
    """Measures how a detector errs on the labelled rows."""
    if labelled is None:
        return None
    rows = labelled.rows
    found = {prediction.id: prediction for prediction in detector.predict_examples(rows)}
    return JudgeError.of(rows, found, labelled.name)


def load_judges(block: Mapping[str, Any], labelled: LabelledRows | None, **options: Any) -> tuple[ResponseJudge, ...]:
    """Loads the judges of `benchmark.judges`, each with its error on the labelled rows that are new to it.

    Args:
        options: precision and batch_tokens of the models.
    """
    judges: list[ResponseJudge] = []
    for number, name in enumerate(block.get("judges") or [], start=2):
        if name in (OVERLAP, COUNTED):
            judges.append(_fitted(name, fit_word_overlap if name == OVERLAP else fit_features, labelled))
            continue
        shown, detector = _load(name, **options)
        new = labelled.new_to(name.removeprefix(NLI), shown) if labelled else None
        judges.append(
            ResponseJudge(key=f"{CRITIC}_{number}", name=shown, detector=detector, error=error_of(detector, new))
        )
    return tuple(judges)


def _load(name: str, **options: Any) -> tuple[str, Detector]:
    """Loads a model that judges; gives also its name in a table."""
    path = name.removeprefix(NLI)
    if path == name:
        return _shown(path), load_detector(path, **options)
    return f"entailment by {_shown(path)}", EntailmentJudge(load_entailment(path, **options))


def judge_models(block: Mapping[str, Any]) -> dict[str, str]:
    """Names the models among the critic and the judges by role, as a report names them: `judge`, `judge 2`, ..."""
    models = {"judge": block["critic"]} if block["critic"] else {}
    for number, name in enumerate(block.get("judges") or [], start=2):
        if name not in (OVERLAP, COUNTED):
            models[f"judge {number}"] = name.removeprefix(NLI)
    return models


def _shown(path: str) -> str:
    """Shortens a path or hub name to its last part, a run's hf/ folder to the run's, which tells one from another."""
    folder = Path(path)
    return (folder.parent if folder.name == "hf" else folder).name


def _fitted(name: str, fit: Fit, labelled: LabelledRows | None) -> ResponseJudge:
    """Fits a judge to the labelled rows; its error is that on rows that it has not seen: folds by group."""
    if labelled is None:
        hint = "benchmark.judge_labels=[{dataset: audit, path: DIR}]"
        raise UserError(f"the judge {name} learns from labelled rows, and none are named", hint=hint)
    rows, said = labelled.rows, dict[str, Prediction]()
    for others, held in folds_by_group(rows):
        said |= {prediction.id: prediction for prediction in fit(others).predict_examples(held)}
    error = JudgeError.of(rows, said, f"{labelled.name}, each fitted on the other folds")
    return ResponseJudge(key=name, name=name.replace("_", " "), detector=fit(rows), error=error)


@dataclass(frozen=True, slots=True)
class WordOverlap:
    """Calls hallucinated what has too large a share of words that the knowledge lacks."""

    threshold: float | None

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Counts words; there is nothing to show a bar for."""
        if examples:
            yield from overlap_predictions(examples, threshold=self.threshold).values()


def fit_word_overlap(rows: Sequence[Example]) -> WordOverlap:
    """Fits the threshold of word overlap that is best on the rows."""
    return WordOverlap(fit_overlap(rows))


@dataclass(frozen=True, slots=True)
class FittedFeatures:
    """Boosted trees on counted features, learnt from labelled rows."""

    trees: CountedFeatures

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Counts and asks the trees; there is nothing to show a bar for."""
        yield from self.trees.predictions(examples).values()


def fit_features(rows: Sequence[Example]) -> FittedFeatures:
    """Fits boosted trees, with the threshold that is best on the rows, by folds."""
    trees = fit_counted_features_by_folds(rows)
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
