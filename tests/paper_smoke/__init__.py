"""Runs every recipe of the papers' scale for two steps, with random weights: `make paper-smoke`."""
