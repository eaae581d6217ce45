"""Parts of every training: the Trainer, batches by length, checkpoints, the optimizer, several processes."""
