"""Negatives: unfaithful responses made from the corpus itself, which the contrastive objective learns to avoid.

Kinds are `original` (the response before it was corrected),
`entity_swap`, `verbatim` (the knowledge itself) and `other` (responses from other dialogues). `given`
are those of the file: `negative_samples` of FaithDial's utterances.
"""
