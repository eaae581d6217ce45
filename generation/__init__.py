"""Generators that answer from knowledge: training, decoding, and what keeps their answers faithful."""
