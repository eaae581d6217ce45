"""The report of one test set: numbers to keep, tables to show, notes on both, and a sample of predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.table import Table

from faithkit.pages.tables import escape_terminal
from faithkit.records import Example, Prediction
from faithkit.statistics.metric import Metric

Row = Mapping[str, Any]
MAX_CHARACTERS = 2000  # of a text in a sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Metrics by name without split and dataset; the tables and notes are told in their order.

    Args:
        headline: What a reader sees first, mostly one table; empty for the first of `tables`.
        samples: The examples that the last table shows, as plain rows of equal columns, for loggers.
        lines: Told as they are, before the notes: where the predictions are from.
        alerts: Those of them that nobody may miss, such as rows that the model was trained on.
        facts: The same for metrics.json.
        answers: Examples with what was predicted of each, for the run's page; a report may have nothing else.
        by: What else these are told apart by: by column the value of each example, by id.
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


def merge_reports(report: Report, other: Report) -> Report:
    """Adds what else was found of the same predictions; its tables stand before the predictions to judge by eye."""
    place = len(report.tables) - bool(report.samples)
    return replace(
        report,
        metrics={**report.metrics, **other.metrics},
        headline=(*report.headline, *other.headline),
        tables=(*report.tables[:place], *other.tables, *report.tables[place:]),
        notes=(*report.notes, *other.notes),
        by={**report.by, **other.by},
    )


def build_sample(example: Example, **said: Any) -> Row:
    """Writes an example and what was said of it as plain texts and numbers, each text one harmless line."""
    row = {
        "id": example.id,
        "knowledge": example.knowledge,
        "last_turn": example.history[-1].text if example.history else "",
        "response": example.response,
        **said,
    }
    return {name: escape_terminal(v, MAX_CHARACTERS) if isinstance(v, str) else v for name, v in row.items()}
