"""The types of hallucinated spans in RAGTruth (Niu et al. 2024, section 3)."""

# Evident: clear from the source; subtle: a matter of wording. Conflict: the source contradicts it; baseless: the source
# does not mention it.
TYPES = ("evident_conflict", "subtle_conflict", "evident_baseless", "subtle_baseless")
UNTYPED = "hallucination"  # of corpora without types
SPAN_LABELS = (*TYPES, UNTYPED)
