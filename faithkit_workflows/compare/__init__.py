"""Runs beside each other: settings that differ, metrics, paired tests, slices, rows they disagree on."""
