"""The protocol of a task, and the steps from a finished training to its reports, which all tasks share."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pytorch_lightning as pl
import torch.distributed
from numpy.typing import NDArray

from faithkit.baselines.counted_features import CountedFeatures
from faithkit.baselines.simple_detectors import BaselineData
from faithkit.files.jsonl import write_jsonl
from faithkit.files.model_folder import Sidecar, write_folder
from faithkit.files.run_folder import RunFolder
from faithkit.provenance.predicted_rows import to_line
from faithkit.provenance.predictions_origin import write_origin
from faithkit.provenance.row_keys import row_keys
from faithkit.provenance.seen_rows import CALIBRATED, CHOSEN, TRAINED, SeenRows
from faithkit.records import Example, Prediction
from faithkit.reports.provenance import Provenance
from faithkit.reports.write_reports import Reports, detection_reports
from faithkit.training.checkpoints import load_best
from faithkit.weights.used_model import UsedModel, describe_model

T = TypeVar("T")


def gather_objects(own: T) -> list[T]:
    """Gives every process the objects of all, in the order of their ranks; alone, just its own."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [own]
    gathered: list[T] = [own] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, own)
    return gathered


log = logging.getLogger("faithkit")
Data = TypeVar("Data")  # the DataModule, which the ground does not know
Predictor = TypeVar("Predictor")
Row = TypeVar("Row")
Result = TypeVar("Result")
TestResults = Mapping[str, tuple[list[Example], list[Prediction]]]  # of each test set its examples and predictions


@dataclass(frozen=True, kw_only=True)
class FinishedTraining(Generic[Data]):
    """A training that has ended, as `Task.finish` gets it.

    Args:
        origin: Where the model comes from: configuration and data, as its sidecar and metrics.json say.
        num_resamples: Bootstrap resamples of each interval.
        num_examples: Examples that a report shows.
        save_texts: Predictions are written with the texts of their examples.
        inherited: What the weights had seen that training began with.
    """

    trainer: pl.Trainer
    module: Any
    data: Data
    run: RunFolder
    origin: Mapping[str, Any]
    num_resamples: int
    num_examples: int
    save_texts: bool = True
    inherited: SeenRows = field(default_factory=lambda: SeenRows({}))

    @cached_property
    def validation(self) -> list[Example]:
        """The examples of all validation sets; the tasks' rows have the same order."""
        data: Any = self.data
        return [example for subset in data.subsets["validation"] for example in subset.examples()]

    def seen(self, calibrated_on: Iterable[Example]) -> SeenRows:
        """Joins what the model has seen: that which its beginning had, training, validation, rows of calibration."""
        data: Any = self.data
        calibrated = [row_keys(calibrated_on)]
        own = {TRAINED: data.keys("train"), CHOSEN: data.keys("validation"), CALIBRATED: calibrated}
        return self.inherited | SeenRows.of(own)

    @cached_property
    def models(self) -> list[UsedModel]:
        """The model of hf/, as the origins of predictions name it."""
        return [describe_model(str(self.run.path))]

    def training_sample(self, size: int) -> list[Example]:
        """Draws at most `size` of the training examples; none where they are streamed."""
        data: Any = self.data
        subsets = data.subsets.get("train", ())
        total = sum(len(subset) for subset in subsets)
        rows = np.arange(total) if total <= size else np.sort(np.random.default_rng(0).permutation(total)[:size])
        examples: list[Example] = []
        for subset in subsets:
            examples += subset.encoded.examples(subset.indices[rows[(rows >= 0) & (rows < len(subset))]])
            rows = rows - len(subset)
        return examples

    def divide_work(self, count: int, work: Callable[[NDArray[np.int64]], Sequence[Result]]) -> list[Result]:
        """The results of items 0 to `count`, in order; each process works on its share of them.

        Args:
            work: Takes numbers of items and gives a result for each.
        """
        mine = np.arange(count)[self.trainer.global_rank :: self.trainer.world_size]
        results: dict[int, Result] = {}
        for numbers, found in gather_objects((mine.tolist(), list(work(mine)))):
            results |= zip(numbers, found, strict=True)
        return [results[number] for number in range(count)]


class Task(Protocol):
    """A kind of model that train.py can train; Hydra builds it from the block `model.task`.

    Its constructor takes the rest of the `model` block as `model=`, beside what the task's own block names.
    """

    @property
    def encoder(self) -> Any:
        """Turns examples into batches: an `Encoder` of data_modules."""
        ...

    def module(self, *, num_steps: int, dataset: str, seed: int) -> pl.LightningModule:
        """The module to train, for so many optimiser steps."""
        ...

    def finish(self, training: FinishedTraining[Any]) -> tuple[Reports, dict[str, Any]]:
        """Tests the best checkpoint and writes predictions and hf/: `finish_training` with the task's own steps.

        Returns:
            For each test set its reports, from the first process alone; and what was fitted on validation.
        """
        ...


class FinishingSteps(Protocol[Data, Predictor, Row]):
    """The steps of `finish_training` in which tasks differ; a task that has them passes itself.

    A predictor is what the calibrated model predicts with, and a row is its result for one example.
    """

    @property
    def model_class(self) -> Any:
        """The Auto class of the model."""
        ...

    @property
    def tokenizer(self) -> Any:
        """Stands beside the weights in hf/."""
        ...

    def calibrate(self, training: FinishedTraining[Data], model: Any) -> tuple[Predictor, dict[str, Any]]:
        """Makes a predictor of the best model; also gives a report of what was fitted on validation."""
        ...

    def calibrated_on(self, training: FinishedTraining[Data]) -> list[Example]:
        """The examples of validation that `calibrate` fits anything on."""
        ...

    def predict(self, training: FinishedTraining[Data], predictor: Predictor, subset: Any) -> list[Row]:
        """Gives a result for each row of a test subset, in order; all processes call it."""
        ...

    def sidecar(self, training: FinishedTraining[Data], predictor: Predictor) -> Sidecar:
        """The settings that stand beside the weights in hf/."""
        ...

    def report(
        self,
        training: FinishedTraining[Data],
        predictor: Predictor,
        tests: Mapping[str, tuple[list[Example], list[Row]]],
    ) -> Reports:
        """The reports of each test set, from its examples and results."""
        ...


def finish_training(
    training: FinishedTraining[Data], steps: FinishingSteps[Data, Predictor, Row]
) -> tuple[Reports, dict[str, Any]]:
    """Takes the best checkpoint through validation and test, and writes hf/: the same sequence in every task."""
    data: Any = training.data
    best = load_best(training.module, training.run, steps.model_class)
    best = best.to(training.trainer.strategy.root_device).eval()
    sizes = ", ".join(f"{subset.name} {len(subset):,} rows" for subset in data.subsets["test"])
    log.info("trained; fitting on validation, then testing: %s", sizes or "no test set")
    predictor, fit = steps.calibrate(training, best)
    tests = {
        subset.name: (subset.examples(), steps.predict(training, predictor, subset)) for subset in data.subsets["test"]
    }
    if not training.trainer.is_global_zero:
        return {}, fit
    seen = training.seen(steps.calibrated_on(training))
    write_folder(training.run.hf, best, steps.tokenizer, steps.sidecar(training, predictor), seen)
    return steps.report(training, predictor, tests), fit


def report_detector(
    training: FinishedTraining[Any],
    tests: TestResults,
    *,
    fitted_on: Sequence[Example],
    parts: str = "validation",
    counted: CountedFeatures | None = None,
) -> Reports:
    """Writes a detector's predictions, a file a test set, and compares those of labelled examples with their labels.

    Args:
        fitted_on: The examples that the detector was calibrated on: baselines choose their threshold on them.
        parts: Of the data, that these are rows of.
        counted: The baseline that was fitted on the training rows, where there is one.
    """
    labelled, origins = {}, {}
    for name, (examples, predictions) in tests.items():
        if examples:
            path = training.run.predictions / f"{name}.jsonl"
            pairs = zip(predictions, examples, strict=True)
            write_jsonl(path, (to_line(p, e, texts=training.save_texts) for p, e in pairs))
            write_origin(path, name, examples, training.models)
        kept = [(e, p) for e, p in zip(examples, predictions, strict=True) if e.label is not None]
        labelled[name] = ([e for e, _ in kept], [p for _, p in kept])
        origins[name] = Provenance.of(name, labelled[name][0], training.models)
    return detection_reports(
        labelled,
        meta=training.origin,
        baseline_data=BaselineData(rows=fitted_on, name=f"{len(fitted_on):,} {parts} rows", counted=counted),
        num_resamples=training.num_resamples,
        num_examples=training.num_examples,
        origins=origins,
    )
