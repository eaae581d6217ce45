"""Files to checked rows, rows to checked records: what every dataset shares."""
