"""Metrics of generated responses, one family a file: pure, in batches, models passed in."""
