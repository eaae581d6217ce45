"""Responses that a generator must not give, made from the corpus itself: what the contrastive objective learns against.

Four kinds, each a file with one function from examples to texts: `original` (what people said before it was corrected),
`entity_swap`, `verbatim` (the knowledge itself) and `other` (what was said in other dialogues).
"""
