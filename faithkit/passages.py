"""Reads passages of knowledge, and joins a list of passages to one text."""

from collections.abc import Mapping, Sequence
from typing import Any

from faithkit.errors import UserError, shorten

TEXT_KEYS = ("text", "page_content", "content", "passage")  # of a passage object, as retrievers write them


def passage_text(passage: Any) -> Any:
    """Returns the text of a passage object such as {title, text}; returns any other value unchanged.

    Other fields, titles included, are not read: the training corpora of detectors have no titles.

    Raises:
        UserError: The object has no text, or several.
    """
    if not isinstance(passage, Mapping):
        return passage
    found = [key for key in TEXT_KEYS if passage.get(key) is not None]  # Parquet fills what an object lacks with None
    if len(found) == 1:
        return passage[found[0]]
    hint = f"give its text under one of {', '.join(TEXT_KEYS)}"
    if found:
        raise UserError(f"an object with several texts: {', '.join(found)}", hint=hint)
    inside = shorten(", ".join(map(str, passage)))[1:-1]
    raise UserError(f"an object without a text: it has {inside or 'nothing'}", hint=hint)


def join_passages(passages: Sequence[str]) -> str:
    """Joins passages by a space, as the critics' corpora do."""
    return " ".join(passages)


def number_passages(passages: Sequence[str]) -> str:
    """Joins passages with their numbers, as RAGTruth, the taggers' corpus, does; a single passage has no number."""
    if len(passages) == 1:
        return passages[0]
    return "".join(f"passage {number}:{text}\n\n" for number, text in enumerate(passages, start=1))
