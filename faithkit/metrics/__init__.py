"""Computes metrics of detectors and generators: pure functions from records to named numbers."""
