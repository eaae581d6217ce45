"""Domains of a detector: their rows, the features that cheap baselines learn from, and `benchmark=domains`."""
