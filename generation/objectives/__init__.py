"""Training objectives of generators, one a file."""
