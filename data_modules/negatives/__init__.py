"""Negatives: unfaithful responses made from the corpus itself, which the contrastive objective learns to avoid.

Four kinds, each a file with one function from examples to texts: `original` (the response before it was corrected),
`entity_swap`, `verbatim` (the knowledge itself) and `other` (responses from other dialogues).
"""
