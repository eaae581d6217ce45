"""The pipelines of construct.py, a file each: which steps they have, and what they write at the end."""
