"""The results file of a run, `metrics.json`: named metrics with intervals, and what was measured on what.

{"metrics": {"test/begin/macro_f1": {"value": 0.71, "low": 0.69, "high": 0.73, "n": 1864}}, "meta": {...}}
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit.evaluation.intervals import Metric
from faithkit.files.atomic import write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The content of a results file: metrics by full name (`split/dataset/metric`), and facts about the run."""

    metrics: dict[str, Metric]
    meta: dict[str, Any] = field(default_factory=dict)

    def of(self, split: str, dataset: str) -> dict[str, Metric]:
        """Selects the metrics of one split of one dataset, by their short names."""
        prefix = metric_name(split, dataset, "")
        return {name[len(prefix) :]: metric for name, metric in self.metrics.items() if name.startswith(prefix)}


def metric_name(split: str, dataset: str, metric: str) -> str:
    """Builds the full name, `split/dataset/metric`."""
    assert split and dataset and "/" not in split + dataset, f"no part of a metric's name: {split!r}, {dataset!r}"
    return f"{split}/{dataset}/{metric}"


def full_names(split: str, dataset: str, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Renames metrics to their full names."""
    return {metric_name(split, dataset, name): metric for name, metric in metrics.items()}


def write_results(path: str | Path, metrics: Mapping[str, Metric], meta: Mapping[str, Any]) -> None:
    """Writes `metrics.json` in one step; metrics stand under their full names."""
    short = [name for name in metrics if name.count("/") < 2]
    assert not short, f"metrics need full names, split/dataset/metric: {short}"
    write_json(path, {"metrics": {name: metric.to_dict() for name, metric in metrics.items()}, "meta": dict(meta)})


def read_results(path: str | Path) -> Results:
    """Reads a `metrics.json`, or the one of a run folder.

    Raises:
        UserError: It is missing or not of this form.
    """
    file = Path(path) / "metrics.json" if Path(path).is_dir() else Path(path)
    hint = "name a run folder whose run has ended, or its metrics.json"
    try:
        values = json.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise UserError("there are no results here", place=str(file), hint=hint) from error
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", place=str(file), hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"not a results file: {error}", place=str(file), hint=hint) from error
    metrics = values.get("metrics") if isinstance(values, dict) else None
    if not isinstance(metrics, dict) or not isinstance(values.get("meta", {}), dict):
        raise UserError(f"not a results file: it holds {shorten(values)}", place=str(file), hint=hint)
    found = {}
    for name, row in metrics.items():
        try:
            found[name] = Metric.from_dict(row)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"metric {shorten(name)} is {shorten(row)}: {error}", place=str(file), hint=hint) from error
    return Results(metrics=found, meta=values.get("meta", {}))
