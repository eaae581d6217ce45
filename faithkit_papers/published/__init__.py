"""Figures of the papers that only their tables and the description of a corpus show, one file for each table."""
