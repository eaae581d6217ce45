"""Writes responses with a generator and chooses among them."""
