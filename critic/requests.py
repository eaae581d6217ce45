"""Requests to a detector: a response with its knowledge and its history."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from data_modules.encoding.span_encoder import question_text
from faithkit.arguments import TEXT_HINT, is_list, read_columns, read_passages, read_text, read_turns, wrong
from faithkit.records import Example, Turn

TURN_BREAK = "\n"  # between turns, as in `question_text`

Knowledge: TypeAlias = str | Sequence[str | Mapping[str, Any]]  # a text, or passages: texts, or objects with one
HistoryTurn: TypeAlias = str | Turn | tuple[str, str] | Mapping[str, str]  # a text, or (speaker, text) in some form
History: TypeAlias = str | Sequence[HistoryTurn] | None  # the last turn, or all turns, the oldest first
Join: TypeAlias = Callable[[Sequence[str]], str]  # joins passages to one text


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
    """Makes a request from an example."""
    return Request(example.knowledge, question_text(example), example.response)


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the arguments in error messages."""

    knowledge: str = "knowledge"
    history: str = "history"
    response: str = "response"


DEFAULT_NAMES = Names()


def read_requests(
    knowledge: Any, response: Any, history: Any, join: Join, names: Names = DEFAULT_NAMES
) -> tuple[bool, list[Request]]:
    """Reads the requests of one call, and whether the response is a single text.

    Raises:
        UserError: Lists have different lengths, or a text is empty or no text.
    """
    if isinstance(response, str):
        return True, [read_request(knowledge, response, history, None, join, names)]
    if not is_list(response):
        raise wrong(names.response, "a text or a list of texts", response, TEXT_HINT)
    columns = {names.knowledge: knowledge, names.response: response}
    columns |= {} if history is None else {names.history: history}
    rows = read_columns(columns, names.response)
    histories = rows.get(names.history, [None] * len(rows[names.response]))
    every = zip(rows[names.knowledge], rows[names.response], histories, strict=True)
    return False, [read_request(*row, place, join, names) for place, row in enumerate(every)]


def read_request(
    knowledge: Any, response: Any, history: Any, number: int | None, join: Join, names: Names = DEFAULT_NAMES
) -> Request:
    """Reads and checks one request; errors name its number in a list."""
    place = None if number is None else f"item {number}"
    passages = read_passages(names.knowledge, knowledge, place)
    question = "" if history is None else history
    if not isinstance(question, str):
        question = TURN_BREAK.join(text for _, text in read_turns(names.history, question, place))
    return Request(join(passages), question, read_text(names.response, response, place))
