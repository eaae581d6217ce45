"""The kinds of hallucinated spans, as RAGTruth tells them (Niu et al. 2024, section 3)."""

# Evident: plain to see beside the source; subtle: a matter of wording. Conflict: the source says otherwise; baseless:
# it does not say.
TYPES = ("evident_conflict", "subtle_conflict", "evident_baseless", "subtle_baseless")
UNTYPED = "hallucination"  # of corpora that do not tell types
SPAN_LABELS = (*TYPES, UNTYPED)
