"""A run as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from faithkit.runs.state import CONSTRUCT, EVALUATE, GENERATE, SCORE, TRAIN, State
from faithkit.statistics.metric import Metric

Curve = list[tuple[int, float]]  # steps, each with its value
# The script of a configuration, by a key that those named behind it lack.
SCRIPTS = {"pipeline": CONSTRUCT, "benchmark": EVALUATE, "columns": SCORE, "decoding": GENERATE, "callbacks": TRAIN}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run, as far as its folder could be read.

    Args:
        name: The folder's name.
        script: train, evaluate, generate, construct or score; empty where the configuration does not tell.
        began: Local time; None where nothing tells it.
        config: The content of config.yaml in plain containers; empty where it cannot be read.
        metrics: Those of metrics.json by full name, `split/dataset/metric`.
        meta: What metrics.json says beside its metrics.
        predictions: Predictions files by name: the run's own, or those that it scored. A file's origin may stand beside
            it (faithkit.provenance.predictions_origin).
        curves: The file of the learning curves, for `read_curves`; None where there is none.
        problems: Sentences on what could not be read.
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


def script_of(config: Mapping[str, Any]) -> str:
    """Tells which script a configuration is of; empty where it does not tell."""
    return next((script for key, script in SCRIPTS.items() if config.get(key)), "")


def parts_of(name: str) -> tuple[str, str, str]:
    """Splits the full name of a metric into split, dataset and the name behind them; a short one has only the last."""
    split, dataset, *rest = name.split("/", 2) if name.count("/") > 1 else ("", "", name)
    return split, dataset, rest[0]
