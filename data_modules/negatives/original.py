"""The response before it was corrected, where its tags call it hallucinated."""

from collections.abc import Sequence

from faithkit.records import Example

HALLUCINATED_TAGS = {"hallucination", "partial hallucination"}  # the tags describe the original response


def original_responses(examples: Sequence[Example]) -> list[list[str]]:
    """Returns at most one text for each example."""
    return [[e.original] if e.original and _hallucinated(e) else [] for e in examples]


def _hallucinated(example: Example) -> bool:
    return any(tag.strip().lower() in HALLUCINATED_TAGS for tag in example.tags)
