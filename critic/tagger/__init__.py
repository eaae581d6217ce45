"""The span tagger: which characters of an answer its source does not support."""
