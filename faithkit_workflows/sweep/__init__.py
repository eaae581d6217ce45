"""Runs sweeps of train.py: many trainings that differ in some settings, each a run in the folder of the sweep."""
