"""Passages of knowledge: the text of one that is an object, and one text of a list of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from faithkit.errors import UserError, shorten

TEXT_KEYS = ("text", "page_content", "content", "passage")  # of a passage that is an object, as retrievers write it


def passage_text(passage: Any) -> Any:
    """The text of a passage that is an object, {title, text} say; anything else stays as it is.

    What else the object has, a title too, is not read: no corpus that detectors are trained on has titles in front.

    Raises:
        UserError: None of the keys of a text is there, or several are.
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


def number_passages(passages: Sequence[str]) -> str:
    """Passages as RAGTruth, the taggers' corpus, writes those of its questions: each with its number."""
    if len(passages) == 1:
        return passages[0]
    return "".join(f"passage {number}:{text}\n\n" for number, text in enumerate(passages, start=1))
