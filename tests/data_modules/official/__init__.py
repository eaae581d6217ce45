"""Invented rows in the official layouts, by what the datasets hold."""
