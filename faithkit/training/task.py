"""The protocol of a training task, and the steps from a finished training to its reports.

`finish_training` runs the same sequence for every task: load the best checkpoint, calibrate it on validation, predict
the test sets, write hf/, report. Tasks differ in three hooks: `calibrate`, `predict` and `report`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pytorch_lightning as pl
import torch.distributed
from numpy.typing import NDArray

from faithkit.baselines.simple_detectors import BaselineData, baseline_thresholds, source_names
from faithkit.baselines.word_features import MAX_ROWS, fit_counted_features
from faithkit.files.jsonl import write_jsonl
from faithkit.files.model_folder import Sidecar, write_folder
from faithkit.files.run_folder import RunFolder
from faithkit.provenance.predicted_rows import to_line
from faithkit.provenance.row_keys import row_keys
from faithkit.provenance.used_model import (
    CALIBRATED,
    CHOSEN,
    TRAINED,
    SeenRows,
    UsedModel,
    describe_model,
    write_origin,
)
from faithkit.records import Example, Prediction
from faithkit.reports.report import Provenance
from faithkit.reports.write_reports import Reports, detection_reports
from faithkit.training.checkpoints import is_in_shards, load_best

log = logging.getLogger("faithkit")
Data = TypeVar("Data")  # the DataModule, which this package does not import
Predictor = TypeVar("Predictor")
Row = TypeVar("Row")
Result = TypeVar("Result")
TestResults = Mapping[str, tuple[list[Example], list[Row]]]  # the examples and results of each test set


@dataclass(frozen=True, kw_only=True)
class FinishedTraining(Generic[Data]):
    """A finished training.

    Args:
        origin: Configuration and data of the model, as in its sidecar and metrics.json.
        num_resamples: Bootstrap resamples of each interval.
        num_examples: Examples shown in a report.
        save_texts: Predictions are written with the texts of their examples.
        inherited: The rows that the initial weights had seen.
        while_working: Keeps the processes in step while each works on its share, if the tested model is sharded.
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
    while_working: Callable[[], AbstractContextManager[None]] = nullcontext

    @cached_property
    def validation(self) -> list[Example]:
        """The examples of all validation sets, in the order of their rows."""
        data: Any = self.data
        return [example for subset in data.subsets["validation"] for example in subset.examples()]

    def origin_with_baselines(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Adds the thresholds of simple baselines, fitted on the rows of the calibration, to the origin of a model."""
        return {**self.origin, **baseline_thresholds(examples)}

    @cached_property
    def models(self) -> list[UsedModel]:
        """The model of hf/, as the origins of predictions name it."""
        return [describe_model(str(self.run.path))]

    def divide_work(self, count: int, work: Callable[[NDArray[np.int64]], Sequence[Result]]) -> list[Result]:
        """Returns the results of items 0 to `count` in order; each process computes its share of them.

        Args:
            work: Takes numbers of items and returns a result for each.
        """
        share = np.arange(count)[self.trainer.global_rank :: self.trainer.world_size]
        results: dict[int, Result] = {}
        with self.while_working():
            done = list(work(share))
        parts = [(share.tolist(), done)]
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            parts *= torch.distributed.get_world_size()
            torch.distributed.all_gather_object(parts, parts[0])
        for numbers, found in parts:
            results |= zip(numbers, found, strict=True)
        return [results[number] for number in range(count)]


@dataclass(frozen=True, kw_only=True)
class Calibrated(Generic[Predictor]):
    """A calibrated model.

    Args:
        predictor: Predicts with the calibrated model.
        sidecar: The settings written to hf/ with the weights.
        examples: The examples that anything was fitted on.
        fit: What was fitted, for metrics.json.
        finish_model: Changes the model before it is written to hf/.
    """

    predictor: Predictor
    sidecar: Sidecar
    examples: list[Example] = field(default_factory=list)
    fit: dict[str, Any] = field(default_factory=dict)
    finish_model: Callable[[Any], object] = lambda _: None


class Task(Protocol[Data, Predictor, Row]):
    """A kind of model that train.py can train; Hydra builds it from the block `model.task`.

    Its constructor takes the rest of the `model` block as `model=`, and the keys of the task's block. A predictor
    is what the calibrated model predicts with, and a row is its result for one example. `calibrate` and `predict` run
    the model, which may be sharded, as a whole and only within `divide_work`; `report` does not run it.

    Attributes:
        encoder: Turns examples into batches: an `Encoder` of data_modules.
        tokenizer: Written to hf/ with the weights.
        model_class: The Auto class of the model.
    """

    encoder: Any
    tokenizer: Any
    model_class: Any

    def module(self, *, num_steps: int, dataset: str, seed: int) -> pl.LightningModule:
        """Builds the module to train, for this number of optimiser steps."""
        ...

    def calibrate(self, training: FinishedTraining[Data], model: Any) -> Calibrated[Predictor]:
        """Makes a predictor of the best model; all processes call it."""
        ...

    def predict(self, training: FinishedTraining[Data], predictor: Predictor, subset: Any) -> list[Row]:
        """Returns a result for each row of a test subset, in order; all processes call it."""
        ...

    def report(
        self, training: FinishedTraining[Data], calibrated: Calibrated[Predictor], tests: TestResults[Row]
    ) -> Reports:
        """Writes predictions and builds the reports of each test set; the first process calls it."""
        ...


def finish_training(
    training: FinishedTraining[Data], task: Task[Data, Predictor, Row]
) -> tuple[Reports, dict[str, Any]]:
    """Calibrates and tests the best checkpoint, and writes hf/.

    A model that was trained in shards is tested in shards; only the first process loads it whole, to write hf/.

    Returns:
        The reports of each test set, from the first process only; and what was fitted on validation.
    """
    data: Any = training.data
    is_first, in_shards = training.trainer.is_global_zero, is_in_shards(training.module)
    strategy = training.trainer.strategy
    strategy.optimizers, strategy.lr_scheduler_configs = [], []  # frees the moments
    training.module.zero_grad()
    best = load_best(training.module, training.run, task.model_class, empty=in_shards and not is_first)
    if in_shards:
        from faithkit.training.sharded_strategy import in_step, shard

        shard(best.eval(), strategy)
        training = replace(training, while_working=partial(in_step, best))
    else:
        best = best.to(strategy.root_device).eval()
    sizes = ", ".join(f"{subset.name} {len(subset):,} rows" for subset in data.subsets["test"])
    log.info("trained; fitting on validation, then testing: %s", sizes or "no test set")
    calibrated = task.calibrate(training, best)
    predictor = calibrated.predictor
    tests = {
        subset.name: (subset.examples(), task.predict(training, predictor, subset)) for subset in data.subsets["test"]
    }
    if not is_first:
        return {}, calibrated.fit
    if in_shards:
        best = load_best(training.module, training.run, task.model_class).eval()
    calibrated.finish_model(best)
    keys = {
        TRAINED: data.keys("train"),
        CHOSEN: data.keys("validation"),
        CALIBRATED: [row_keys(calibrated.examples)],
    }
    seen = training.inherited | SeenRows.of(keys)  # in earlier trainings too
    write_folder(training.run.hf, best, task.tokenizer, calibrated.sidecar, seen)
    if (adapters := getattr(training.module, "adapters", None)) is not None:
        adapters.write(training.run)
    return task.report(training, calibrated, tests), calibrated.fit


def report_detector(
    training: FinishedTraining[Any],
    tests: TestResults[Prediction],
    *,
    fitted_on: Sequence[Example],
    parts: str = "validation",
    aim: str | None = None,
) -> Reports:
    """Writes a detector's predictions, one file for each test set, and compares them with the labels.

    Args:
        fitted_on: The examples of the calibration, on which baselines choose their thresholds.
        parts: The parts of the data that these examples are from.
        aim: Also fits the baseline of counted features on a sample of training rows, with a threshold for this aim.
    """
    counted = None
    if aim is not None:
        subsets = training.data.subsets.get("train", ())  # none if the data is streamed
        total = sum(len(subset) for subset in subsets)
        rows = np.arange(total)
        if total > MAX_ROWS:
            rows = np.sort(np.random.default_rng(0).permutation(total)[:MAX_ROWS])
        sample: list[Example] = []
        for subset in subsets:
            sample += subset.encoded.examples(subset.indices[rows[(rows >= 0) & (rows < len(subset))]])
            rows = rows - len(subset)
        counted = fit_counted_features(sample, fitted_on, aim=aim)
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
    sources = source_names({row.source for row in fitted_on}, training.origin.get("config"))
    name = f"{len(fitted_on):,} {parts} rows of {', '.join(sorted(sources))}"
    return detection_reports(
        labelled,
        meta=training.origin,
        baseline_data=BaselineData(rows=fitted_on, name=name, sources=sources, counted=counted),
        num_resamples=training.num_resamples,
        num_examples=training.num_examples,
        origins=origins,
    )
