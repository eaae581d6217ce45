"""Reads published figures to compare with ours: one JSON file for each table of a paper."""
