"""Runs as plain data: what was run, how it ended, its metrics, predictions and curves; nothing of torch is loaded.

from faithkit import runs
runs.find_runs("runs/*")
"""

from faithkit.runs.curves import read_curves
from faithkit.runs.reading import Run, find_runs, read_run
from faithkit.runs.state import State

__all__ = ["Run", "State", "find_runs", "read_curves", "read_run"]
