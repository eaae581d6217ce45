"""What is said of one test set, and the end of every run: metrics.json and tables."""
