"""Losses of the critic and the tagger, one per file."""
