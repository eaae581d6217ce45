"""Records to token ids, ids to batches: encoders, their cache on disk, batches by length."""
