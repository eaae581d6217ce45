"""The detector `thorough`: a small language model that reads context and answer, joined with `default`."""
