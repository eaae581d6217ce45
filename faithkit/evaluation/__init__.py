"""Metrics, intervals, calibration and tables: pure functions from records to named numbers."""
