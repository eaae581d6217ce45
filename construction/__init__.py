"""Builds benchmarks: samples, annotates, exchanges with annotators, measures their agreement, describes the result."""
