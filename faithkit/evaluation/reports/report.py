"""The report of one test set: numbers to keep, tables to show, notes on both, and a sample of predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rich.table import Table

from faithkit.evaluation.intervals import Metric
from faithkit.evaluation.tables import harmless
from faithkit.records import Example

Row = Mapping[str, Any]
MAX_CHARACTERS = 2000  # of a text in a sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Metrics by name without split and dataset; the tables and notes are printed in their order.

    Args:
        samples: The examples that the last table shows, as plain rows of equal columns, for loggers.
        lines: Printed as they are, before the notes: where the predictions are from.
        facts: The same for metrics.json.
    """

    metrics: dict[str, Metric]
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    samples: tuple[Row, ...] = ()
    lines: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def joined(report: Report, other: Report) -> Report:
    """Adds what else was found of the same predictions; its tables stand before the predictions to judge by eye."""
    place = len(report.tables) - bool(report.samples)
    return replace(
        report,
        metrics={**report.metrics, **other.metrics},
        tables=(*report.tables[:place], *other.tables, *report.tables[place:]),
        notes=(*report.notes, *other.notes),
    )


def sample_row(example: Example, **said: Any) -> Row:
    """Writes an example and what was said of it as plain texts and numbers, each text one harmless line."""
    row = {
        "id": example.id,
        "knowledge": example.knowledge,
        "last_turn": example.history[-1].text if example.history else "",
        "response": example.response,
        **said,
    }
    return {name: harmless(v, MAX_CHARACTERS) if isinstance(v, str) else v for name, v in row.items()}
