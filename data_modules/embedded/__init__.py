"""The embedded corpus: a generator of examples, so that every part runs without any download."""
