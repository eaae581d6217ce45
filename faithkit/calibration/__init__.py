"""Turns scores into probabilities and labels: temperature, thresholds, abstention."""
