"""Requests to a detector: a response with its knowledge and its history."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import Any, TypeAlias

from tqdm.auto import tqdm

from data_modules.encoding.encoder import question_text
from faithkit.arguments import (
    ASSISTANTS,
    TEXT_HINT,
    is_list,
    name_list,
    read_columns,
    read_examples,
    read_flag,
    read_iterable,
    read_passages,
    read_text,
    read_turns,
    wrong,
)
from faithkit.errors import UserError
from faithkit.records import Example, Prediction, Turn

_END = object()
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
        asked: Those of them that the assistant has not written; None where the question is one text.
    """

    knowledge: str
    question: str
    response: str
    asked: str | None = None


Judge: TypeAlias = Callable[[list[Request]], Sequence[Prediction]]  # returns a result for each request, in order


def request_of(example: Example) -> Request:
    """Makes a request from an example."""
    asked = _join_asked([(turn.speaker, turn.text) for turn in example.history])
    return Request(example.knowledge, question_text(example), example.response, asked)


def _join_asked(turns: Sequence[tuple[str | None, str]]) -> str:
    """Joins the turns of others than the assistant; without names two speakers take turns, and the user was last."""
    last = len(turns) - 1
    return TURN_BREAK.join(
        text
        for place, (speaker, text) in enumerate(turns)
        if (speaker.lower() not in ASSISTANTS if speaker else (last - place) % 2 == 0)
    )


def answer_call(judge: Judge, knowledge: Any, response: Any, history: Any, join: Join) -> Prediction | list[Prediction]:
    """Judges what one call passes, a single response or a list of them; results of a list are numbered.

    Raises:
        UserError: Lists have different lengths, or a text is empty or no text.
    """
    if isinstance(response, str):
        return judge([read_request(knowledge, response, history, None, join)])[0]
    if not is_list(response):
        raise wrong("response", "a text or a list of texts", response, TEXT_HINT)
    columns = {"knowledge": knowledge, "response": response} | ({} if history is None else {"history": history})
    rows = read_columns(columns, "response")
    histories = rows.get("history", [None] * len(rows["response"]))
    every = zip(rows["knowledge"], rows["response"], histories, strict=True)
    results = judge([read_request(*row, number, join) for number, row in enumerate(every)])
    return [replace(one, id=str(number)) for number, one in enumerate(results)]


def example_chunks(
    examples: Sequence[Example], size: int, description: str, progress: bool
) -> Iterator[Sequence[Example]]:
    """Checks examples, and yields them chunk by chunk; `description` labels the progress bar."""
    examples, quiet = read_examples(examples), not read_flag("progress", progress)
    for begin in tqdm(range(0, len(examples), size), description, disable=quiet, unit="chunk"):
        yield examples[begin : begin + size]


def read_request(knowledge: Any, response: Any, history: Any, number: int | None, join: Join) -> Request:
    """Reads and checks one request; errors name its number in a list."""
    place = None if number is None else f"item {number}"
    passages = read_passages("knowledge", knowledge, place)
    turns = [] if history is None or isinstance(history, str) else read_turns("history", history, place)
    question = history if isinstance(history, str) else TURN_BREAK.join(text for _, text in turns)
    asked = _join_asked(turns) if turns else None
    return Request(join(passages), question, read_text("response", response, place), asked)


SINGLE = "0"  # the id of the result of a single response


def stream_results(
    judge: Judge,
    knowledge: Iterable[Any],
    response: Iterable[Any],
    history: Iterable[Any] | None,
    *,
    join: Join,
    chunk_size: int,
    description: str,
    progress: bool,
) -> Iterator[Prediction]:
    """Judges responses chunk by chunk, and yields the results one by one.

    Args:
        description: Label of the progress bar.
        progress: Shows the progress bar.

    Raises:
        UserError: One column ends before the others, or an item is invalid.
    """
    given = {"knowledge": knowledge, "response": response} | ({} if history is None else {"history": history})
    columns = [read_iterable(name, column) for name, column in given.items()]
    rows = enumerate(zip_longest(*columns, fillvalue=_END))
    total = len(response) if isinstance(response, Sized) else None
    with tqdm(total=total, desc=description, disable=not read_flag("progress", progress), unit="response") as bar:
        while chunk := list(islice(rows, chunk_size)):
            requests = []
            for number, row in chunk:
                if ended := [name for name, item in zip(given, row, strict=True) if item is _END]:
                    problem = f"{name_list(ended)} ended before the others"
                    hint = "give as many of each as there are responses"
                    raise UserError(problem, place=f"item {number}", hint=hint)
                requests.append(read_request(row[0], row[1], row[2] if len(row) > 2 else None, number, join))
            for (number, _), result in zip(chunk, judge(requests), strict=True):
                yield replace(result, id=str(number))
            bar.update(len(chunk))
