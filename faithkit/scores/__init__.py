"""The systems of a test set side by side: metrics with intervals, paired tests, conclusions."""
