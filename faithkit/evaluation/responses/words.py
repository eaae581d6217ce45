"""How texts become words for the metrics of responses; each metric says which of these it counts."""

import re

from faithkit.words import STOP_WORDS, word_set

ARTICLES = word_set("a an the")
_WORD = re.compile(r"\w+(?:'\w+)*")
_WORD_OR_MARK = re.compile(r"\w+(?:'\w+)*|[^\w\s]")


def words(text: str) -> list[str]:
    """Words in lower case; an apostrophe within a word stays, other punctuation goes."""
    return _WORD.findall(_plain(text))


def words_and_marks(text: str) -> list[str]:
    """Words in lower case, and every punctuation mark as a token of its own."""
    return _WORD_OR_MARK.findall(_plain(text))


def content_words(text: str) -> list[str]:
    """Words in lower case without stop-words."""
    return [word for word in words(text) if word not in STOP_WORDS]


def answer_words(text: str) -> list[str]:
    """Words in lower case without articles: what two short answers are compared by."""
    return [word for word in words(text) if word not in ARTICLES]


def _plain(text: str) -> str:
    return text.lower().replace("’", "'")
