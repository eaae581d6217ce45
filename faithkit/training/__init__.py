"""What every training shares: the Trainer, batches by length, checkpoints, the optimizer, several processes."""
