"""Rows of our own invention in the official layouts, by what the datasets hold."""
