"""Checks the texts, lists and turns that callers pass to Critic, Tagger and Generator.

A list may be a list, a tuple, a generator, a numpy array or a column of pandas. `place` is the item of
a list.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from faithkit.arguments import wrong
from faithkit.errors import UserError, shorten
from faithkit.passages import passage_text
from faithkit.records import Example, Turn

ASSISTANTS = ("assistant", "bot", "model", "system response", "wizard")  # names of the speaker who answers
TEXT_HINT = 'give a text, such as "The Danube is long."'
PASSAGES_HINT = 'give a text or a list of passages, such as ["The Danube is long.", "It ends in the Black Sea."]'
# As Python, numpy and pandas write a value that is not there.
MISSING = ("None", "nan", "np.float64(nan)", "<NA>", "NaT")
TURNS_HINT = 'give texts, or turns such as ("user", "Is it long?") or {"role": "user", "content": "Is it long?"}'


def is_list(value: Any) -> bool:
    """Reports whether a value is accepted as a list: it has one dimension and an order, and is no text."""
    if isinstance(value, str | bytes | bytearray | Mapping | Set | Turn | Example) or not isinstance(value, Iterable):
        return False
    return getattr(value, "ndim", 1) == 1  # arrays and tables have others


def read_iterable(name: str, value: Any) -> Iterator[Any]:
    """Reads a list of any length, item by item."""
    if not is_list(value):
        hint = f"give a list: {name}=[...]" if isinstance(value, str) else f"give a list, {name}=[...], or one column"
        raise wrong(name, "a list or another iterable", value, hint)
    return iter(value)


def read_list(name: str, value: Any) -> list[Any]:
    """Reads a list whole."""
    return list(read_iterable(name, value))


def read_text(name: str, value: Any, place: str | None = None) -> str:
    """Reads a text that is not empty."""
    if isinstance(value, str) and value and not value.isspace():
        return value
    raise wrong(name, "text that is not empty", value, _text_hint(value), place)


def read_passages(name: str, value: Any, place: str | None = None) -> list[str]:
    """Reads a text, or a list of passages; one that is given twice, as retrieval may do, counts once.

    A passage is a text, or an object with one, {"title": ..., "text": ...} say.
    """
    if isinstance(value, str) or not is_list(value):
        return [read_text(name, value, place)]
    passages = [read_text(name, _passage_text(name, passage, place), place) for passage in value]
    if not passages:
        raise wrong(name, "text that is not empty", value, PASSAGES_HINT, place)
    return list(dict.fromkeys(passages))


def read_turns(name: str, value: Any, place: str | None = None) -> list[tuple[str | None, str]]:
    """Reads turns, the oldest first, as speaker (None where none is named) and text."""
    if not is_list(value):
        raise wrong(name, "text or turns", value, TURNS_HINT, place)
    return [_read_turn(name, turn, place) for turn in value]


def read_names(name: str, value: Any) -> list[str] | None:
    """Reads a list of words; None stays None."""
    if value is None:
        return None
    return [read_text(name, word, f"item {number}") for number, word in enumerate(read_list(name, value))]


def read_examples(examples: Any) -> Sequence[Example]:
    """Reads records."""
    found = examples if isinstance(examples, list | tuple) else read_list("examples", examples)
    for number, example in enumerate(found):
        if not isinstance(example, Example):
            hint = "make records: faithkit.records.Example(id=..., knowledge=..., response=..., ...)"
            raise wrong("examples", "Example records", example, hint, f"item {number}")
    return found


def _passage_text(name: str, passage: Any, place: str | None) -> Any:
    try:
        return passage_text(passage)
    except UserError as error:
        raise UserError(f"{name}: a passage is {error.problem}", place=place, hint=error.hint) from None


def _read_turn(name: str, turn: Any, place: str | None) -> tuple[str | None, str]:
    speaker, text = None, turn
    if isinstance(turn, Turn):
        speaker, text = turn.speaker, turn.text
    elif isinstance(turn, Mapping):
        speaker, text = turn.get("speaker", turn.get("role")), turn.get("text", turn.get("content"))
    elif isinstance(turn, tuple) and len(turn) == 2:
        speaker, text = turn
    if not isinstance(text, str) or not isinstance(speaker, str | None):
        raise wrong(name, "text, or turns that are texts or (speaker, text)", turn, TURNS_HINT, place)
    return speaker, text


def _text_hint(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return 'decode it: .decode("utf-8")'
    if shorten(value) in MISSING:
        return 'give a text; in pandas leave out rows without one: frame.dropna(subset=["..."])'
    return TEXT_HINT


def read_columns(columns: Mapping[str, Any], first: str) -> dict[str, list[Any]]:
    """Reads the columns of a call for many responses; the first is known to be a list.

    Raises:
        UserError: Another is none, or has another length.
    """
    for name, column in columns.items():
        if not is_list(column):
            hint = f"give {name} as a list too: one for each response"
            raise wrong(name, f"a list, since {first} is one", column, hint)
    rows = {name: list(column) for name, column in columns.items()}
    check_lengths(rows)
    return rows


def check_lengths(columns: Mapping[str, Sequence[Any]]) -> None:
    """Refuses lists of different lengths."""
    if len({len(column) for column in columns.values()}) > 1:
        lengths = name_list([f"{len(column)} {name}" for name, column in columns.items()])
        raise UserError(f"lists of different lengths: {lengths}", hint="give as many of each")


def name_list(parts: Sequence[str]) -> str:
    """Joins names as a sentence does: "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
