"""Chooses the rows that a benchmark's baselines are fitted on: `benchmark.fit_on`, or the model's validation rows."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_modules.build import Benchmark, dataset_of, read_block
from data_modules.reading.exclude import Excluded
from faithkit.baselines.simple_detectors import BaselineData, read_baseline_thresholds
from faithkit.detector import Detector
from faithkit.errors import UserError
from faithkit.files.model_folder import sidecar_of
from faithkit.files.run_folder import RunFolder
from faithkit.records import Example
from faithkit.weights.used_model import CHECKPOINT, UsedModel
from faithkit_workflows.answering.retrieval import retrieve
from faithkit_workflows.answering.write_answers import DetectorAnswerer, write_answers

log = logging.getLogger("faithkit")


def read_fitting(
    run: RunFolder,
    config: Mapping[str, Any],
    benchmark: Benchmark,
    detector: Detector | None,
    models: Sequence[UsedModel],
) -> BaselineData:
    """Reads the rows of `benchmark.fit_on`; without them the thresholds that are stored with the model.

    Args:
        detector: Judges these rows too, so that its threshold is fitted on the same rows; None for given predictions.
        models: The models that made the predictions.
    """
    if not (config["benchmark"].get("fit_on") or []):
        return _read_stored_fitting(next((model.path for model in models if model.role == CHECKPOINT), None))
    rows, name = read_fitting_rows(config, benchmark)
    predictions = {}
    if detector is not None:
        path = run.predictions / f"{benchmark.name}-fit_on.jsonl"
        written = write_answers(path, rows, DetectorAnswerer(detector), chunk_size=config["save_every_num_rows"])
        predictions = {prediction.id: prediction for prediction in written}
    return BaselineData(rows=rows, name=name, learn=True, model_predictions=predictions)


def read_fitting_rows(config: Mapping[str, Any], benchmark: Benchmark) -> tuple[list[Example], str]:
    """Reads labelled rows to fit on, none of which is tested, and returns them with their name in tables."""
    rows, names = [], []
    for number, block in enumerate(config["benchmark"].get("fit_on") or []):
        found = _read_untested_rows(block, benchmark, prefix=f"{number}/")
        rows += found
        names.append(f"{len(found):,} rows of {dataset_of(block)}, {Path(block['path']).name}")
    retrieved = retrieve(config, rows) if rows else None
    return retrieved[0] if retrieved else rows, "; ".join(names)


def _read_untested_rows(block: Mapping[str, Any], benchmark: Benchmark, *, prefix: str) -> list[Example]:
    """Reads the labelled rows of one dataset that share no knowledge or dialogue with a tested row."""
    found, tested = read_block(block), Excluded.of(benchmark.examples)
    labelled = [example for example in found if example.label is not None]
    kept = [example for example in labelled if not tested.covers(example)]
    name = dataset_of(block)
    log.info(
        "fitting on %s: %s rows; %s rows share knowledge with a tested row and %s have no label: left out",
        *(name, f"{len(kept):,}", f"{len(labelled) - len(kept):,}", f"{len(found) - len(labelled):,}"),
    )
    if not kept:
        hint = "name other rows: benchmark.fit_on=[{dataset: NAME, path: PATH, split: validation}]"
        raise UserError(f"benchmark.fit_on: no labelled row of {name} is left", place=str(block["path"]), hint=hint)
    return [replace(example, id=prefix + example.id) for example in kept]


def _read_stored_fitting(checkpoint: str | None) -> BaselineData:
    """Reads the thresholds that are stored with a model, fitted on the rows that its own threshold was fitted on."""
    sidecar = sidecar_of(checkpoint)
    fitting = read_baseline_thresholds(sidecar.origin if sidecar else {})
    if not fitting.thresholds:
        log.info("word overlap has no fitted threshold: name labelled rows by benchmark.fit_on=[{dataset, path}]")
    return fitting
