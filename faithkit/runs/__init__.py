"""Runs as plain data and as data frames: settings, states, metrics, predictions, curves.

from faithkit import runs
runs.to_pandas("runs/*")  # every metric; see also predictions_to_pandas and curves_to_pandas
runs.find_runs("runs/*")
"""

from faithkit.runs.frames import curves_to_pandas, predictions_to_pandas, to_pandas
from faithkit.runs.reading import find_runs, read_curves, read_run
from faithkit.runs.run import Run, State

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
