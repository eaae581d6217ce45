"""Requests to a detector: a response with its knowledge and the history before it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from data_modules.encoding.spans import question_text
from faithkit.errors import UserError, shorten
from faithkit.records import Example, Turn

TURN_BREAK = "\n"  # between turns, as in `question_text`

Knowledge: TypeAlias = str | Sequence[str]  # a text, or passages
HistoryTurn: TypeAlias = str | Turn | tuple[str, str] | Mapping[str, str]  # a text, or (speaker, text) in some form
History: TypeAlias = str | Sequence[HistoryTurn] | None  # the last turn alone, or turns, the oldest first
Join: TypeAlias = Callable[[Sequence[str]], str]  # makes one text of passages


@dataclass(frozen=True, slots=True)
class Request:
    """One response with its knowledge and history.

    Args:
        question: The turns before the response, the oldest first, joined by line breaks.
    """

    knowledge: str
    question: str
    response: str


def request_of(example: Example) -> Request:
    """Makes a request of an example."""
    return Request(example.knowledge, question_text(example), example.response)


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the arguments as the caller wrote them, for error messages."""

    knowledge: str = "knowledge"
    history: str = "history"
    response: str = "response"


DEFAULT_NAMES = Names()


def read_requests(
    knowledge: Any, response: Any, history: Any, join: Join, names: Names = DEFAULT_NAMES
) -> tuple[bool, list[Request]]:
    """The requests of one call, and whether it is a single one: a response that is a text.

    Raises:
        UserError: Lists of different lengths, something that is no text, or an empty text.
    """
    if isinstance(response, str):
        return True, [read_request(knowledge, response, history, 0, join, names)]
    columns = {names.knowledge: knowledge, names.response: response}
    columns |= {} if history is None else {names.history: history}
    if any(isinstance(column, str | Mapping) or not isinstance(column, Iterable) for column in columns.values()):
        shown = ", ".join(f"{name} is {type(column).__name__}" for name, column in columns.items())
        raise UserError(
            f"{name_list(list(columns))} must all be texts, or all be lists: one for each response; {shown}"
        )
    rows = {name: list(column) for name, column in columns.items()}
    if len({len(column) for column in rows.values()}) > 1:
        raise UserError(
            name_list([f"{len(column)} {name}" for name, column in rows.items()]) + ": one for each response"
        )
    histories = rows.get(names.history, [None] * len(rows[names.response]))
    every = zip(rows[names.knowledge], rows[names.response], histories, strict=True)
    return False, [read_request(*row, place, join, names) for place, row in enumerate(every)]


def join_passages(passages: Sequence[str]) -> str:
    """Passages as the critics' corpora join theirs: by a space."""
    return " ".join(passages)


def number_passages(passages: Sequence[str]) -> str:
    """Passages as RAGTruth, the taggers' corpus, writes those of its questions: each with its number."""
    if len(passages) == 1:
        return passages[0]
    return "".join(f"passage {number}:{text}\n\n" for number, text in enumerate(passages, start=1))


def read_request(
    knowledge: Any, response: Any, history: Any, place: int, join: Join, names: Names = DEFAULT_NAMES
) -> Request:
    """One request, checked; errors name the item."""
    passages = [knowledge] if isinstance(knowledge, str) or not isinstance(knowledge, Iterable) else list(knowledge)
    _check_text(names.knowledge, passages or "", place, passages)
    _check_text(names.response, response, place, [response])
    turns = [] if history is None else [history] if isinstance(history, str) else history
    if not isinstance(turns, Sequence):
        raise UserError(f"{names.history} must be text or turns, got {shorten(history)}", place=f"item {place}")
    said = [_turn_text(turn, place, names.history) for turn in turns]
    return Request(join(passages), TURN_BREAK.join(said), response)


def read_threshold(threshold: Any) -> float | None:
    """A threshold of one call; None for the stored one."""
    if threshold is None:
        return None
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise UserError(f"threshold is {shorten(threshold)}", hint="use a probability from 0 to 1")
    return float(threshold)


def _check_text(name: str, given: Any, place: int, texts: Sequence[Any]) -> None:
    wrong = [text for text in texts if not isinstance(text, str) or not text.strip()]
    if wrong or not texts:
        shown = shorten(wrong[0] if wrong else given)
        raise UserError(f"{name} must be text that is not empty, got {shown}", place=f"item {place}")


def _turn_text(turn: Any, place: int, name: str) -> str:
    text = turn
    if isinstance(turn, Turn):
        text = turn.text
    elif isinstance(turn, Mapping):
        text = turn.get("text", turn.get("content"))
    elif isinstance(turn, tuple) and len(turn) == 2:
        text = turn[1]
    if not isinstance(text, str):
        problem = f"{name} must be text, or turns that are texts or (speaker, text), got {shorten(turn)}"
        raise UserError(problem, place=f"item {place}")
    return text


def name_list(parts: Sequence[str]) -> str:
    """Joins names as a sentence does: "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
