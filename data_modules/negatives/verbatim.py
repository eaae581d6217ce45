"""The knowledge itself: it is true, but no answer to anybody."""

from collections.abc import Sequence

from faithkit.records import Example
from faithkit.sentences import best_sentences

MAX_WORDS = 60  # of a longer text, the sentences that the response is nearest to


def verbatim_knowledge(examples: Sequence[Example]) -> list[list[str]]:
    """One text for each example: its knowledge, cut to MAX_WORDS."""
    return [[best_sentences(e.knowledge, e.response, MAX_WORDS).strip()] for e in examples]
