"""Sweeps of train.py: many trainings that differ in some settings, each a run of its own in the sweep's folder."""
