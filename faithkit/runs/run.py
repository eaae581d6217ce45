"""A run as plain data: its state, settings, metrics and predictions, and the settings in which runs differ."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from faithkit.files.run_folder import RunFolder
from faithkit.files.run_lock import is_locked
from faithkit.statistics.metric import Metric

TRAIN, EVALUATE, GENERATE, CONSTRUCT = "train", "evaluate", "generate", "construct"
AUDIT, COMPARE = "audit", "compare"
IGNORED_SETTINGS = ("run_dir", "resume", "debug", "fast", "html", "hydra")  # they do not change what a run does

Curve = list[tuple[int, float]]  # steps, each with its value


class State(StrEnum):
    """The state of a run."""

    FINISHED = "finished"
    RESUMABLE = "resumable"  # interrupted: `resume=` continues it
    WORKING = "working"  # a command works in the folder now
    BROKEN = "broken"  # neither finished nor resumable


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run, as far as its folder could be read.

    Args:
        name: The folder's name.
        script: train, evaluate, generate, construct, score, audit or compare; empty if config.yaml does not show it.
        began: Local time; None if unknown.
        config: The content of config.yaml in plain containers; empty if it cannot be read.
        metrics: The metrics of metrics.json by full name, `split/dataset/metric`.
        meta: The other content of metrics.json.
        predictions: Predictions files by name: the run's files, and files that it scored.
        curves: The file of the learning curves, for `read_curves`; None if there is none.
        problems: Sentences about what could not be read.
    """

    folder: Path
    name: str
    script: str = ""
    state: State = State.BROKEN
    began: datetime | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    predictions: Mapping[str, Path] = field(default_factory=dict)
    curves: Path | None = None
    problems: tuple[str, ...] = ()


def parts_of(name: str) -> tuple[str, str, str]:
    """Splits a metric's full name into split, dataset and metric; a short name has only the last."""
    split, dataset, *rest = name.split("/", 2) if name.count("/") > 1 else ("", "", name)
    return split, dataset, rest[0]


def state_of(run: RunFolder, script: str, predictions: Iterable[Path], *, has_results: bool, has_config: bool) -> State:
    """Derives the state of a run from the files in its folder.

    Args:
        predictions: Its predictions files.
        has_results: Its metrics.json could be read.
        has_config: Its config.yaml could be read; nothing is resumed without it.
    """
    if is_locked(run.path):
        return State.WORKING
    has_ended = has_results  # not every script writes a metrics.json
    if script == GENERATE:  # a file's origin is written after its last row
        files = list(predictions)
        has_ended |= bool(files) and all(path.with_suffix(".origin.json").exists() for path in files)
    elif script in (AUDIT, COMPARE):
        has_ended |= (run.path / f"{script}.json").exists()
    elif script == EVALUATE:
        has_ended |= (run.path / "corpus.json").exists()  # benchmark=analysis
    elif script == CONSTRUCT:
        with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
            content = json.loads((run.path / "manifest.json").read_bytes())
            has_ended |= bool(content["result"]) and all(step["state"] == "done" for step in content["steps"])
    if has_ended:
        return State.FINISHED
    return State.RESUMABLE if has_config else State.BROKEN


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each value with its full key, `model.max_length`; lists stay whole."""
    for key, value in config.items():
        name = f"{prefix}{key}"
        # A scale is defaults for all models: the values that a run uses are in its other blocks.
        if name in IGNORED_SETTINGS or (prefix == "scale." and key != "name"):
            continue
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, value


def differing_settings(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Finds the settings that differ, each with the value of every run; None for a run without the key.

    Runs are compared with runs of the same script. A value under several keys, such as `optimizer.lr` and
    `model.task.optimizer.lr`, is listed once, under the shortest key.
    """
    configs = [dict(flatten(run.config)) for run in runs]
    differing: dict[str, list[Any]] = {}
    listed: set[tuple[str, str]] = set()
    for key in sorted({key for config in configs for key in config}, key=lambda key: (key.count("."), key)):
        scripts = {run.script for run, config in zip(runs, configs, strict=True) if key in config}
        compared = {repr(c.get(key)) for run, c in zip(runs, configs, strict=True) if c and run.script in scripts}
        values = [config.get(key) for config in configs]
        if key.endswith("._target_"):  # a class by its file, which has the name of its choice: objective=infonce
            key, values = key.removesuffix("._target_"), [str(v).split(".")[-2:][0] if v else v for v in values]
        duplicate = (key.rpartition(".")[2], repr(values))
        if len(compared) > 1 and duplicate not in listed:
            listed.add(duplicate)
            differing[key] = values
    return differing
