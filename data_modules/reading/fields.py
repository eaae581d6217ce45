"""Fields of a record that several datasets fill in the same way."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any
from unicodedata import normalize

from faithkit.arguments import ASSISTANTS, read_text, read_turns, wrong
from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, WHOLE_KNOWLEDGE, Turn

SEEKER, WIZARD = "seeker", "wizard"  # who asks and who answers, in every dialogue dataset
SPEAKER_MARKS = {SEEKER: "[Human]", WIZARD: "[Assistant]"}  # in a dialogue written as one text
YES_NO = {"yes": HALLUCINATED, "no": FAITHFUL}  # the answer to: is it hallucinated?
PROBABILITY = "probability"  # in `meta`: a weak label
ANY = "all"  # of an option that names several things
Names = str | Sequence[str]
RESERVED = (WHOLE_KNOWLEDGE, PROBABILITY)  # what our own code puts into `meta`, and no row


def chosen(names: Names, option: str = "it") -> set[str]:
    """The names that an option gives, one or a list, in lower case.

    Args:
        option: As an error tells it.

    Raises:
        UserError: It is neither a name nor a list of names.
    """
    if (
        not isinstance(names, Collection)
        or isinstance(names, Mapping)
        or not all(isinstance(name, str) for name in names)
    ):
        raise UserError(f"{option} is {shorten(names)}", hint=f"use {option}=NAME, or {option}=[ONE,OTHER]")
    return {name.lower() for name in ([names] if isinstance(names, str) else names)}


def alternate(texts: Sequence[str]) -> tuple[Turn, ...]:
    """A history in which two speakers take turns and the seeker spoke last."""
    speakers = (SEEKER, WIZARD)
    return tuple(Turn(speaker=speakers[(len(texts) - 1 - i) % 2], text=text) for i, text in enumerate(texts))


def read_history(history: Any, place: str | None = None) -> tuple[Turn, ...]:
    """Reads the turns that a caller passes, oldest first; where no speaker is named, two take turns.

    Raises:
        UserError: Something is no text, or nothing was said.
    """
    if isinstance(history, Sequence) and not len(history):
        raise wrong("history", "a list of turns", history, "give at least the last turn: history=[...]", place)
    said = read_turns("history", history, place)
    texts = [
        read_text("history", text, f"{place}{', ' if place else ''}turn {number} of the history")
        for number, (_, text) in enumerate(said)
    ]
    return tuple(
        turn if speaker is None else replace(turn, speaker=WIZARD if speaker.lower() in ASSISTANTS else speaker)
        for (speaker, _), turn in zip(said, alternate(texts), strict=True)
    )


def other_fields(values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Collects the other texts, numbers and truth values of a row, for `meta`; names with a meaning are left out."""
    kept = (str, int, float, bool, NoneType)
    return {n: v for n, v in values.items() if n not in known and n not in RESERVED and isinstance(v, kept)}


_MARKS = {code: None for code in range(128) if not chr(code).isalnum()}


def text_group(text: str) -> str:
    """Names a group by a text: the same name for texts that differ only in case, white space, punctuation and form.

    BEGIN's four models had one source tokenised in different ways ("end." and "end ."), and texts of a Mac or a PDF
    have a letter and its accent as two characters.
    """
    if text.isascii():  # the same, ten times as fast
        kept = text.lower().translate(_MARKS) or text
    else:
        text = normalize("NFC", text)  # a letter with its accent is alphanumeric, an accent by itself is not
        kept = "".join(character for character in text.lower() if character.isalnum()) or text
    return hashlib.blake2b(kept.encode(), digest_size=12).hexdigest()
