"""Reports of test sets, and the end of every run: metrics.json and tables."""
