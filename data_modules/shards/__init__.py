"""Streaming of shards: what they hold, who reads which rows, and the batches made of them."""
