"""Reads a user's table and writes it back with verdicts."""
