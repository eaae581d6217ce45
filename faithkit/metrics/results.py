"""The results file of a run, `metrics.json`: named metrics with intervals, and what was measured on what.

{"metrics": {"test/begin/macro_f1": {"value": 0.71, "low": 0.69, "high": 0.73, "n": 1864}}, "meta": {...}}
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faithkit.files.atomic import write_json
from faithkit.files.jsonl import read_strict_json
from faithkit.statistics.metric import Metric


def metric_name(split: str, dataset: str, metric: str) -> str:
    """Builds the full name, `split/dataset/metric`."""
    assert split and dataset and "/" not in split + dataset, f"no part of a metric's name: {split!r}, {dataset!r}"
    return f"{split}/{dataset}/{metric}"


def full_names(split: str, dataset: str, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Renames metrics to their full names."""
    return {metric_name(split, dataset, name): metric for name, metric in metrics.items()}


def write_results(path: str | Path, metrics: Mapping[str, Metric], meta: Mapping[str, Any]) -> None:
    """Writes `metrics.json` in one step; metrics have their full names."""
    short = [name for name in metrics if name.count("/") < 2]
    assert not short, f"metrics need full names, split/dataset/metric: {short}"
    write_json(path, {"metrics": {name: metric.to_dict() for name, metric in metrics.items()}, "meta": dict(meta)})


def read_metrics(path: Path) -> dict[str, dict[str, Any]]:
    """Reads the metrics of `metrics.json` as they are stored; none if a run has not come to its end."""
    if not path.exists():
        return {}
    found = read_strict_json(path, hint="write it again: resume=RUN")
    return dict(found["metrics"])


def read_meta(path: Path) -> dict[str, Any]:
    """Reads what `metrics.json` has besides metrics; nothing if a run has not come to its end."""
    return dict(read_strict_json(path, hint="write it again: resume=RUN")["meta"]) if path.exists() else {}
