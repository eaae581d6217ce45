"""What scoring one test set gives: numbers to keep, tables to show, and what a reader must know of both."""

from dataclasses import dataclass

from rich.table import Table

from faithkit.evaluation.intervals import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Metrics by name without split and dataset; the tables and notes are printed in their order."""

    metrics: dict[str, Metric]
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
