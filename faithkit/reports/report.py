"""The report of one test set: metrics to keep, tables to show, notes on both, and a sample of predictions.

A report function takes examples and predictions, and returns metrics, tables, notes and a sample; `add_provenance`
then adds where the predictions are from. All are written by `write_reports`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from faithkit.pages.page_tables import escape_terminal
from faithkit.records import Example, Prediction
from faithkit.statistics.metric import Metric

Row = Mapping[str, Any]
Rows = NDArray[np.bool_]  # marks rows of a test set [N]
MAX_CHARACTERS = 2000  # of a text in a sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Metrics by name without split and dataset, with tables and notes in the order in which they are shown.

    Args:
        headline: The tables that are always shown, usually one; empty for the first of `tables`.
        samples: The examples of the last table as plain rows of equal columns, for loggers.
        lines: Where the predictions are from; shown before the notes.
        alerts: Those of the lines that are always shown, such as rows that the model was trained on.
        facts: The same for metrics.json.
        answers: Examples with their predictions, for the run's page; a report may have nothing else.
        by: Columns that the page can filter by: the value of each example, by id.
        rescore: Computes the metrics of marked rows, for those that the model has not seen; None where it has no rows.
        shown: The metrics in the table of rescored rows; None for all.
    """

    metrics: dict[str, Metric]
    headline: tuple[Table, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    samples: tuple[Row, ...] = ()
    lines: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    answers: Sequence[tuple[Example, Prediction]] = ()
    by: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rescore: Callable[[Rows], Mapping[str, Metric]] | None = None
    shown: Collection[str] | None = None


def merge_reports(report: Report, other: Report) -> Report:
    """Adds another report of the same predictions; its tables precede the sample of predictions."""
    place = len(report.tables) - bool(report.samples)
    return replace(
        report,
        metrics={**report.metrics, **other.metrics},
        headline=(*report.headline, *other.headline),
        tables=(*report.tables[:place], *other.tables, *report.tables[place:]),
        notes=(*report.notes, *other.notes),
        by={**report.by, **other.by},
    )


def build_sample(example: Example, **values: Any) -> Row:
    """Builds a row of plain values from an example and what was predicted of it, each text on one safe line."""
    row = {
        "id": example.id,
        "knowledge": example.knowledge,
        "last_turn": example.history[-1].text if example.history else "",
        "response": example.response,
        **values,
    }
    return {name: escape_terminal(v, MAX_CHARACTERS) if isinstance(v, str) else v for name, v in row.items()}
