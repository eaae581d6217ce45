"""The report of one test set: numbers to keep, tables to show, and notes on both."""

from dataclasses import dataclass

from rich.table import Table

from faithkit.evaluation.intervals import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Metrics by name without split and dataset; the tables and notes are printed in their order."""

    metrics: dict[str, Metric]
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
