"""Scores or answers data of many shards on a Ray cluster: a worker does one at a time, and what is done stays."""
