"""Loads, combines and compares detectors of every kind."""
