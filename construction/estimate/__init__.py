"""Estimates hallucination rates from a detector's verdicts and a few human labels."""
