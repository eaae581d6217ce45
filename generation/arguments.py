"""Turns a caller's plain texts into the records that a generator reads."""

import hashlib
from collections.abc import Mapping
from typing import Any

from data_modules.reading.fields import read_history
from faithkit.arguments import TURNS_HINT, check_lengths, is_list, read_passages, wrong
from faithkit.records import Example, Turn

Knowledge = str | list[str] | tuple[str, ...]
History = list[str] | list[Turn] | list[str | Turn] | list[dict[str, str]] | tuple[str | Turn, ...]
ROW_HINT = 'give {"knowledge": "...", "history": ["..."]}, or Example records'


def as_examples(knowledge: Any, history: Any) -> tuple[bool, list[Example]]:
    """Makes the examples of one call, and tells whether it is a single turn: a history whose turns are no lists."""
    if not is_list(history):
        raise wrong("history", "a list of turns", history, TURNS_HINT)
    turns = list(history)
    if not (turns and all(is_list(own) for own in turns)):
        return True, [as_example(knowledge, turns)]
    if not is_list(knowledge):
        hint = "give knowledge as a list too: a text or a list of passages for each history"
        raise wrong("knowledge", "a list, since history is a list of histories", knowledge, hint)
    columns = {"knowledge": list(knowledge), "history": turns}
    check_lengths(columns)
    every = zip(columns["knowledge"], columns["history"], strict=True)
    return False, [as_example(*row, f"item {number}") for number, row in enumerate(every)]


def as_example(knowledge: Any, history: Any, place: str | None = None) -> Example:
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
    text, turns = " ".join(read_passages("knowledge", knowledge, place)), read_history(history, place)
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
    place = f"row {number}"
    if not isinstance(row, Mapping) or "knowledge" not in row or "history" not in row:
        raise wrong("rows", "mappings that have knowledge and history", row, ROW_HINT, place)
    id_ = row.get("id", number)
    if isinstance(id_, bool) or not isinstance(id_, str | int) or id_ == "":
        raise wrong("id", "text or a whole number", id_, "leave id out: rows are then numbered", place)
    return str(id_), as_example(row["knowledge"], row["history"], place)
