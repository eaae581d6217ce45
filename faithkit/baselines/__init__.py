"""Baselines without a language model, fitted on the same rows as the model they are compared with."""
