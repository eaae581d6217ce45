"""Figures of papers, to stand beside ours: a JSON file for each table, and what reads them."""
