"""Intervals, means and sampling designs behind every reported figure."""
