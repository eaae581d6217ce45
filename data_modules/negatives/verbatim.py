"""The knowledge itself: true, but not a reply to what was asked."""

from collections.abc import Sequence

from faithkit.records import Example
from faithkit.sentences import best_sentences

MAX_WORDS = 60  # a longer text is cut to the sentences nearest to the response


def verbatim_knowledge(examples: Sequence[Example]) -> list[list[str]]:
    """Returns one text for each example."""
    return [[best_sentences(e.knowledge, e.response, MAX_WORDS).strip()] for e in examples]
