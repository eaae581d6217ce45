"""Evaluates over domains: baselines fitted on all domains but one, means, and what a response tells alone."""
