"""Knowledge F1: how much wording the response and its knowledge share (Shuster et al. 2021).

F1 = 2 * shared / (words of the response + words of the knowledge), each word as often as it stands in both, here
without stop words. Use it as a cheap sign of grounding. A negation costs nothing, and a faithful paraphrase scores low.
"""

from collections.abc import Callable, Sequence

from faithkit.metrics.responses.ngrams import shared_grams
from faithkit.statistics.intervals import Values
from faithkit.words import apostrophe_content_words


def knowledge_f1(responses: Sequence[str], knowledge: Sequence[str]) -> Values:
    """Computes the F1 of the content words of each response and its knowledge [N].

    A text without such words shares nothing: 0.
    """
    response_words, knowledge_words = (
        [apostrophe_content_words(text) for text in side] for side in (responses, knowledge)
    )
    [shared] = shared_grams(response_words, knowledge_words)
    return shared.f1


def answer_f1(first: Sequence[str], second: Sequence[str], clean: Callable[[str], str]) -> Values:
    """Computes the F1 of two short answers each [N], by the words that are left of them when they are cleaned."""
    [shared] = shared_grams([clean(text).split() for text in first], [clean(text).split() for text in second])
    return shared.f1
