"""The wizard's response before people corrected it, where the tags call it hallucinated."""

from collections.abc import Sequence

from faithkit.records import Example

HALLUCINATED_TAGS = {"hallucination", "partial hallucination"}  # tags speak of the original text


def original_responses(examples: Sequence[Example]) -> list[list[str]]:
    """At most one text for each example."""
    return [[e.original] if e.original and _hallucinated(e) else [] for e in examples]


def _hallucinated(example: Example) -> bool:
    return any(tag.strip().lower() in HALLUCINATED_TAGS for tag in example.tags)
