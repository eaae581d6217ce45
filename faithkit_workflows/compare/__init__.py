"""Compares runs: settings, metrics, paired tests, slices, sweeps, and the rows on which they disagree."""
