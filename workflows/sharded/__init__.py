"""Scores data of many shards on a cluster by Ray: a worker scores a shard at a time, and what is scored stays."""
