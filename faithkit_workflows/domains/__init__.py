"""Tests a detector over domains (`benchmark=domains`), with cheap baselines that are fitted on the other domains."""
