"""Fields of a record that several datasets fill in the same way."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from types import NoneType
from typing import Any

from faithkit.records import WHOLE_KNOWLEDGE, Turn

SEEKER, WIZARD = "seeker", "wizard"  # who asks and who answers, in every dialogue dataset
PROBABILITY = "probability"  # in `meta`: a weak label
ANY = "all"  # of an option that names several things
Names = str | Sequence[str]
RESERVED = (WHOLE_KNOWLEDGE, PROBABILITY)  # what our own code puts into `meta`, and no row


def chosen(names: Names) -> set[str]:
    """The names that an option gives, one or a list, in lower case."""
    return {str(name).lower() for name in ([names] if isinstance(names, str) else names)}


def alternate(texts: Sequence[str]) -> tuple[Turn, ...]:
    """A history in which two speakers take turns and the seeker spoke last."""
    speakers = (SEEKER, WIZARD)
    return tuple(Turn(speaker=speakers[(len(texts) - 1 - i) % 2], text=text) for i, text in enumerate(texts))


def other_fields(values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Collects the other texts, numbers and truth values of a row, for `meta`; names with a meaning are left out."""
    kept = (str, int, float, bool, NoneType)
    return {n: v for n, v in values.items() if n not in known and n not in RESERVED and isinstance(v, kept)}


def text_group(text: str) -> str:
    """Names a group by a text: the same name for texts that differ only in case, white space and punctuation.

    BEGIN's four models had one source tokenised in different ways ("end." and "end .").
    """
    kept = "".join(character for character in text.lower() if character.isalnum()) or text
    return hashlib.blake2b(kept.encode(), digest_size=12).hexdigest()
