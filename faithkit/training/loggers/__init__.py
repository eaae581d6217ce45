"""Loggers of a training or an evaluation: CSV files, TensorBoard or Weights & Biases."""
