"""How much of the response's wording is the knowledge's: multiset F1 of their words."""

from collections.abc import Sequence

from faithkit.evaluation.intervals import Values
from faithkit.evaluation.responses.ngrams import shared_grams
from faithkit.evaluation.responses.words import answer_words, content_words


def knowledge_f1(responses: Sequence[str], knowledge: Sequence[str]) -> Values:
    """F1 of the words of each response and its knowledge [N], in lower case, without stop-words and punctuation.

    A text without such words shares nothing: 0.
    """
    [shared] = shared_grams([content_words(text) for text in responses], [content_words(text) for text in knowledge])
    return shared.f1


def answer_f1(first: Sequence[str], second: Sequence[str]) -> Values:
    """F1 of the words of two short answers each [N], in lower case, without articles and punctuation."""
    [shared] = shared_grams([answer_words(text) for text in first], [answer_words(text) for text in second])
    return shared.f1
