"""One file a dataset: raw rows to records."""
