"""Reproduces the four papers: their tables, corpora, human evaluation and rates; the rest works without it."""
