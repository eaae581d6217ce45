"""Where the numbers of a training or an evaluation go: CSV files, TensorBoard or Weights & Biases."""
