"""Datasets: one file each turns raw rows into records; the shared DataModule turns records into batches."""
