"""Runs named steps over JSON lines, resumable after any interruption."""
