"""Chooses what a benchmark's baselines are fitted on: named rows, or those that the model's threshold came from."""

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
from faithkit_workflows.answering.write_answers import DetectorAnswerer, write_answers
from faithkit_workflows.benchmarks.retrieval import retrieve

UNFITTED = "no labelled rows are named, so word overlap has no fitted threshold: benchmark.fit_on=[{dataset, path}]"
log = logging.getLogger("faithkit")


def read_fitting(
    run: RunFolder,
    config: Mapping[str, Any],
    benchmark: Benchmark,
    detector: Detector | None,
    models: Sequence[UsedModel],
) -> BaselineData:
    """Reads the rows of `benchmark.fit_on`; without them the thresholds that the model's folder keeps, if any.

    Args:
        detector: Judges the rows too, so that its own threshold is fitted beside the baselines'; None where the
            predictions are given.
        models: Those that the predictions are from.
    """
    sets = config["benchmark"].get("fit_on") or []
    if not sets:
        return _stored(next((model.path for model in models if model.role == CHECKPOINT), None))
    rows, name = read_fitting_rows(config, benchmark)
    own = {}
    if detector is not None:
        path = run.predictions / f"{benchmark.name}-fit_on.jsonl"
        written = write_answers(path, rows, DetectorAnswerer(detector), at_a_time=config["save_every_num_rows"])
        own = {prediction.id: prediction for prediction in written}
    return BaselineData(rows=rows, name=name, learn=True, own=own)


def read_fitting_rows(config: Mapping[str, Any], benchmark: Benchmark) -> tuple[list[Example], str]:
    """Reads labelled rows to fit something on, none of them tested; gives them, and what a table calls them."""
    rows, names = [], []
    for number, block in enumerate(config["benchmark"].get("fit_on") or []):
        found = _labelled_rows(block, benchmark, prefix=f"{number}/")
        rows += found
        names.append(f"{len(found):,} rows of {dataset_of(block)}, {Path(block['path']).name}")
    read = retrieve(config, rows) if rows else None
    return read.examples if read else rows, "; ".join(names)


def _labelled_rows(block: Mapping[str, Any], benchmark: Benchmark, *, prefix: str) -> list[Example]:
    """Reads the labelled rows of one set, less those of a tested knowledge or dialogue."""
    found, tested = read_block(block), Excluded.of(benchmark.examples)
    labelled = [example for example in found if example.label is not None]
    kept = [example for example in labelled if not tested.covers(example)]
    name = dataset_of(block)
    log.info(
        "fitting on %s: %s rows, %s more left out because their knowledge is tested, %s because they have no label",
        *(name, f"{len(kept):,}", f"{len(labelled) - len(kept):,}", f"{len(found) - len(labelled):,}"),
    )
    if not kept:
        hint = "name other rows: benchmark.fit_on=[{dataset: NAME, path: PATH, split: validation}]"
        raise UserError(f"benchmark.fit_on: no labelled row of {name} is left", place=str(block["path"]), hint=hint)
    return [replace(example, id=prefix + example.id) for example in kept]


def _stored(checkpoint: str | None) -> BaselineData:
    """Reads the thresholds that a model's folder keeps: of the rows that chose the model's own."""
    sidecar = sidecar_of(checkpoint)
    fitting = read_baseline_thresholds(sidecar.origin if sidecar else {})
    if not fitting.thresholds:
        log.info(UNFITTED)
    return fitting
