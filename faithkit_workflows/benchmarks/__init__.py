"""Runs the benchmarks of `evaluate.py`."""
