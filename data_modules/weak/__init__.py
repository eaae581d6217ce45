"""Weak labels: training pairs that nobody judged, with the probability that the response is hallucinated."""
