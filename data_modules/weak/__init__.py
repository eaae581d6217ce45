"""Weak labels: training pairs without human labels, each with the probability that its response is hallucinated."""
