"""Where a training's numbers go: CSV files, TensorBoard or Weights & Biases, while it runs and at its end."""
