"""The sentences of a text, and those of a long knowledge text that a response speaks of."""

import re

from faithkit.words import unicode_content_words

_ENDS = ".!?।॥۔؟።"  # those of Hindi, Urdu, Arabic and Amharic beside the Latin ones: white space follows
_WIDE_ENDS = "。！？"  # of Chinese and Japanese: nothing follows but perhaps a closing mark
_CLOSING = "」』）”’"
_SENTENCE_END = re.compile(
    rf"(?<=[{_ENDS};؛])\s+|(?:(?<=[{_WIDE_ENDS}；])|(?<=[{_WIDE_ENDS}；][{_CLOSING}]))(?![{_WIDE_ENDS}；{_CLOSING}])\s*"
)
_SENTENCE = re.compile(rf"\S[^\n]*?(?:[{_ENDS}]+(?=\s|$)|[{_WIDE_ENDS}]+[{_CLOSING}]*|(?=\n)|$)")


def sentences(text: str) -> list[str]:
    """Splits a text behind `.`, `!`, `?` and `;` before white space, and behind what stands for them elsewhere."""
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence]


def sentence_places(text: str) -> list[tuple[int, int]]:
    """Finds where each sentence of a text begins and ends; a line end is the end of a sentence too."""
    return [found.span() for found in _SENTENCE.finditer(text)]


def best_sentences(knowledge: str, response: str, max_words: int) -> str:
    """Cuts knowledge of more than `max_words` to the sentences that share most content words with the response.

    Words of any script are compared. The sentences keep their order. The best one stays however long it is; after it,
    each that still fits.
    """
    if len(knowledge.split()) <= max_words:
        return knowledge
    said, parts = set(unicode_content_words(response)), sentences(knowledge)
    shared = [len(said & set(unicode_content_words(part))) for part in parts]
    kept: list[int] = []
    num_words = 0
    for i in sorted(range(len(parts)), key=lambda i: -shared[i]):  # of equals, the first
        length = len(parts[i].split())
        if not kept or num_words + length <= max_words:
            kept.append(i)
            num_words += length
    return " ".join(parts[i] for i in sorted(kept))
