"""Turns a caller's plain texts into the records that a generator reads."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from data_modules.reading.fields import alternate
from faithkit.errors import UserError, shorten
from faithkit.records import Example, Turn

Knowledge = str | list[str] | tuple[str, ...]
History = list[str] | list[Turn] | list[str | Turn] | tuple[str | Turn, ...]


def as_example(knowledge: Any, history: Any, place: str = "") -> Example:
    """Makes the example of one turn, whose id depends on its texts alone.

    Sampling draws from a random stream that is named by the id, so the same turn gets the same answer whatever is
    answered beside it.

    Args:
        knowledge: A text, or passages that are joined as the datasets join the sentences of their knowledge: by spaces.
        history: Turns or plain texts, oldest first.
        place: Where this turn stands in a list, for the messages of errors.

    Raises:
        UserError: Something is no text, or nothing was said.
    """
    text, turns = _join_passages(knowledge, place), _as_turns(history, place)
    digest = hashlib.blake2b(digest_size=16)
    for part in (text, *(word for turn in turns for word in (turn.speaker, turn.text))):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    id_ = f"reply:{digest.hexdigest()}"
    return Example(id=id_, source="reply", split="reply", group=id_, knowledge=text, history=turns, response="")


def row_as_example(row: Any, number: int) -> tuple[str, Example]:
    """Gives a row's id and its example.

    Args:
        row: An `Example`, or a mapping with `knowledge`, `history` and perhaps `id`.
        number: Counts rows from 0; the id of a row that has none.
    """
    if isinstance(row, Example):
        return row.id, row
    if not isinstance(row, Mapping) or "knowledge" not in row or "history" not in row:
        hint = 'give {"knowledge": "...", "history": ["..."]}, or Example records'
        raise UserError(f"a row must have knowledge and history, got {shorten(row)}", place=f"row {number}", hint=hint)
    return str(row.get("id", number)), as_example(row["knowledge"], row["history"], f"row {number}")


def is_many(history: Any) -> bool:
    """Tells a list of histories, one for each of many turns, from the history of one turn."""
    if isinstance(history, str) or not isinstance(history, Sequence):
        return False
    return len(history) > 0 and all(isinstance(own, list | tuple) for own in history)


def _join_passages(knowledge: Any, place: str) -> str:
    passages = knowledge if isinstance(knowledge, list | tuple) and knowledge else [knowledge]
    for passage in passages:
        if not isinstance(passage, str) or not passage.strip():
            problem = f"knowledge must be text that is not empty, got {shorten(passage)}"
            raise UserError(problem, place=place or None, hint="give a text, or a list of passages")
    return " ".join(passages)


def _as_turns(history: Any, place: str) -> tuple[Turn, ...]:
    if isinstance(history, str) or not isinstance(history, Sequence) or not history:
        problem = f"history must be a list of turns, got {shorten(history)}"
        raise UserError(problem, place=place or None, hint="give at least the last turn")
    texts = [turn.text if isinstance(turn, Turn) else turn for turn in history]
    for number, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            problem = f"a turn must be text that is not empty, got {shorten(text)}"
            raise UserError(problem, place=f"{place}{', ' if place else ''}turn {number} of the history")
    speakers = alternate(texts)
    return tuple(turn if isinstance(turn, Turn) else other for turn, other in zip(history, speakers, strict=True))
