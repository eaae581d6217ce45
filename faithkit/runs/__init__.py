"""Runs as plain data and as data frames: settings, states, metrics, predictions, curves.

from faithkit import runs
runs.to_pandas("runs/*")  # every metric; see also predictions_to_pandas and curves_to_pandas
runs.find_runs("runs/*")
"""

from faithkit.runs.reading import (
    Run,
    State,
    curves_to_pandas,
    find_runs,
    predictions_to_pandas,
    read_curves,
    read_run,
    to_pandas,
)

__all__ = [
    "Run",
    "State",
    "curves_to_pandas",
    "find_runs",
    "predictions_to_pandas",
    "read_curves",
    "read_run",
    "to_pandas",
]
