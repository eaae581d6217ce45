"""Judges of generated responses, and their errors on labelled rows that they have not seen.

`benchmark.judges` names them: `word_overlap` and `counted_features`, which are fitted on the labelled rows, `nli:NAME`
for any NLI model, or the folder of another detector.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from data_modules.build import dataset_of, read_block, read_excluded
from faithkit.baselines.simple_detectors import fit_counted_features_by_folds, folds_by_group
from faithkit.baselines.word_features import fit_overlap, overlap_predictions
from faithkit.detector import ENTAILMENT, Detector, Entailment
from faithkit.errors import UserError
from faithkit.files.model_folder import sidecar_of
from faithkit.metrics.judge_error import JudgeError
from faithkit.metrics.responses.measure_responses import CRITIC, ResponseJudge
from faithkit.provenance.seen_rows import find_leaks
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit_workflows.detectors.entailment import load_entailment
from faithkit_workflows.detectors.loading import describe_detector, load_detector

OVERLAP, COUNTED, NLI = "word_overlap", "counted_features", "nli:"
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """Labelled rows of one dataset, and a note on how they were chosen."""

    dataset: str
    rows: Sequence[Example]
    note: str = ""


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """All labelled rows that a benchmark names."""

    sets: Sequence[LabelledSet]

    @property
    def rows(self) -> list[Example]:
        """The rows of all sets."""
        return list(chain.from_iterable(one.rows for one in self.sets))

    @property
    def name(self) -> str:
        """The name of the rows in tables."""
        return "; ".join(f"{len(one.rows):,} rows of {one.dataset}{one.note}" for one in self.sets)

    def without_seen_rows(self, checkpoint: str, name: str) -> "LabelledRows":
        """Removes from each set the rows that a detector was trained on, chosen on or calibrated on.

        Rows that trained a teacher of weak labels are not in the list of seen rows. So if the training read a dataset,
        only the rows of it that its `data.exclude` names remain.

        Raises:
            UserError: No row of a set is left.
        """
        sets = list(self.sets)
        for model in describe_detector(checkpoint):
            sidecar, seen = sidecar_of(model.path), model.seen
            read: set[str] | None = None  # the datasets of its training; None where these are unknown
            excluded_blocks: Sequence[Any] = ()
            data = (sidecar.origin.get("config") or {}).get("data") if sidecar else None
            if isinstance(data, Mapping) and "exclude" in data:
                # What the training read: its parts, and the audit where weak labels were made from it.
                blocks = data["parts"].values() if isinstance(data["parts"], Mapping) else data["parts"]
                parts = [part for part in blocks if part.get("only") != "test"]
                excluded_blocks = data["exclude"]
                read = {dataset_of(part) for part in parts} | {"audit" for part in parts if part.get("audit_path")}
            for place, one in enumerate(sets):
                kept = list(one.rows)
                if read is None and seen is None:
                    note = f"{one.note} (whether {name} was trained on them is unknown)"
                    sets[place] = replace(one, note=note)
                    continue
                if read is not None and one.dataset in read:
                    excluded = read_excluded(excluded_blocks)
                    kept = [example for example in kept if excluded.covers(example)]
                if seen is not None:
                    leaked = find_leaks(kept, seen).rows
                    kept = [example for example, is_leaked in zip(kept, leaked, strict=True) if not is_leaked]
                if not kept:
                    hint = "train it with data.exclude=[{dataset, path}] of the rows that it will judge"
                    problem = f"benchmark.judge_labels: {name} was trained on every row of {one.dataset}"
                    raise UserError(problem, hint=f"{hint}, or name other rows")
                if len(kept) < len(one.rows):
                    counts = len(kept), len(one.rows)
                    log.info("%s is measured on %d of %d labelled rows of %s", name, *counts, one.dataset)
                    sets[place] = replace(one, rows=kept, note=f"{one.note} that {name} has not seen")
        return LabelledRows(sets)


def read_labelled(block: Mapping[str, Any], *, seed: int = 0) -> LabelledRows | None:
    """Reads the rows of `benchmark.judge_labels` that the critic has not seen."""
    sets = []
    for number, one in enumerate(block.get("judge_labels") or []):
        labelled_rows = (example for example in read_block(one, seed=seed) if example.label)
        rows = [replace(example, id=f"{number}/{example.id}") for example in labelled_rows]
        sets.append(LabelledSet(dataset_of(one), rows))
    if not sets:
        return None
    labelled = LabelledRows(sets)
    return labelled.without_seen_rows(block["critic"], "the critic") if block["critic"] else labelled


def measure_judge_error(detector: Detector, labelled: LabelledRows | None) -> JudgeError | None:
    """Measures the errors of a detector on labelled rows."""
    if labelled is None:
        return None
    rows = labelled.rows
    predictions = {prediction.id: prediction for prediction in detector.predict_examples(rows)}
    return JudgeError.of(rows, predictions, labelled.name)


def load_judges(block: Mapping[str, Any], labelled: LabelledRows | None, **options: Any) -> tuple[ResponseJudge, ...]:
    """Loads the judges of `benchmark.judges`, each with its error on the labelled rows that it has not seen.

    Args:
        options: precision and batch_tokens of the models.
    """
    judges: list[ResponseJudge] = []
    for number, name in enumerate(block.get("judges") or [], start=2):
        if name in (OVERLAP, COUNTED):
            if labelled is None:
                hint = "benchmark.judge_labels=[{dataset: audit, path: DIR}]"
                raise UserError(f"the judge {name} is fitted on labelled rows, and none are given", hint=hint)
            rows, predictions = labelled.rows, dict[str, Prediction]()
            for others, held_out in folds_by_group(rows):
                predictions |= {one.id: one for one in _fit(name, others).predict_examples(held_out)}
            error = JudgeError.of(rows, predictions, f"{labelled.name}, each fitted on the other folds")
            fitted = _fit(name, rows)
            judges.append(ResponseJudge(key=name, name=name.replace("_", " "), detector=fitted, error=error))
            continue
        path = name.removeprefix(NLI)
        folder, detector = Path(path), None
        display_name = (folder.parent if folder.name == "hf" else folder).name
        if path == name:
            detector = load_detector(path, **options)
        else:
            display_name = f"entailment by {display_name}"
            detector = EntailmentJudge(load_entailment(path, **options))
        unseen = labelled.without_seen_rows(path, display_name) if labelled else None
        measured = measure_judge_error(detector, unseen)
        judges.append(ResponseJudge(key=f"{CRITIC}_{number}", name=display_name, detector=detector, error=measured))
    return tuple(judges)


def list_judge_models(block: Mapping[str, Any]) -> dict[str, str]:
    """Lists the models among the critic and the judges by role, as a report names them: `judge`, `judge 2`, ..."""
    models = {"judge": block["critic"]} if block["critic"] else {}
    for number, name in enumerate(block.get("judges") or [], start=2):
        if name not in (OVERLAP, COUNTED):
            models[f"judge {number}"] = name.removeprefix(NLI)
    return models


@dataclass(frozen=True, slots=True)
class FunctionDetector:
    """A detector that predicts by a function of examples."""

    predict: Callable[[Sequence[Example]], Iterable[Prediction]]

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields one prediction for each example."""
        yield from self.predict(examples)


def _fit(name: str, rows: Sequence[Example]) -> Detector:
    """Fits a judge: by the share of words that the knowledge lacks, or by boosted trees on counted features."""
    if name == OVERLAP:
        threshold = fit_overlap(rows)
        return FunctionDetector(lambda examples: overlap_predictions(examples, threshold).values())
    trees = fit_counted_features_by_folds(rows)
    if trees is None:
        hint = f"name more labelled rows, or leave out the judge {COUNTED}"
        raise UserError(f"{COUNTED}: {len(rows)} labelled rows are too few to fit it", hint=hint)
    return FunctionDetector(lambda examples: trees.predictions(examples).values())


@dataclass(frozen=True, slots=True)
class EntailmentJudge:
    """Labels a response hallucinated unless entailment is the most probable class; the score is 1 - P(entailment)."""

    model: Entailment

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields one prediction for each example."""
        found = self.model.entailment([e.knowledge for e in examples], [e.response for e in examples])
        for example, row in zip(examples, found, strict=True):
            label = FAITHFUL if int(row.argmax()) == ENTAILMENT else HALLUCINATED
            yield Prediction(id=example.id, label=label, score=float(1 - row[ENTAILMENT]))
