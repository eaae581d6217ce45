"""Content words, and the part of a long knowledge text that a response speaks of."""

import re

from faithkit.words import STOP_WORDS

_WORD = re.compile(r"[a-z0-9]+")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+")
_SENTENCE = re.compile(r"\S[^\n]*?(?:[.!?]+(?=\s|$)|(?=\n)|$)")


def content_words(text: str) -> list[str]:
    """Words in lower case, in their order, without those that any text has."""
    return [word for word in _WORD.findall(text.lower()) if word not in STOP_WORDS]


def sentences(text: str) -> list[str]:
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence]


def sentence_places(text: str) -> list[tuple[int, int]]:
    """Where the sentences and lines of a text begin and end."""
    return [found.span() for found in _SENTENCE.finditer(text)]


def best_sentences(knowledge: str, response: str, max_words: int) -> str:
    """Knowledge of more than `max_words`, cut to the sentences that share most content words with the response.

    They keep their order. The best one stays however long it is; after it, each that still fits.
    """
    if len(knowledge.split()) <= max_words:
        return knowledge
    said, parts = set(content_words(response)), sentences(knowledge)
    shared = [len(said & set(content_words(part))) for part in parts]
    kept: list[int] = []
    num_words = 0
    for i in sorted(range(len(parts)), key=lambda i: -shared[i]):  # of equals, the first
        length = len(parts[i].split())
        if not kept or num_words + length <= max_words:
            kept.append(i)
            num_words += length
    return " ".join(parts[i] for i in sorted(kept))
