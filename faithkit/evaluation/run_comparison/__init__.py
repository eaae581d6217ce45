"""Runs beside each other: what differs in their settings, metrics, paired differences, slices, and rows they disagree on."""
