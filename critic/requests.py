"""Requests to a detector: a response with its knowledge and its history."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from data_modules.encoding.span_encoder import question_text
from faithkit.arguments import ASSISTANTS, TEXT_HINT, is_list, read_columns, read_passages, read_text, read_turns, wrong
from faithkit.errors import UserError
from faithkit.records import Example, Turn, number_passages

__all__ = ["Request", "Tagged", "TaggedSpan", "dialogue_requests", "read_question", "request_of"]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedSpan:
    """Characters `start` to `end` of the response that the knowledge does not support.

    Args:
        text: These characters.
        label: The type, or `hallucination` for a tagger without types.
        score: The mean calibrated probability of its characters.
    """

    start: int
    end: int
    text: str
    label: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """The tagger's result for one response.

    Args:
        label: hallucinated or faithful.
        score: Calibrated P(response is hallucinated).
        spans: In the order of the text, without overlaps.
    """

    label: str
    score: float
    spans: list[TaggedSpan] = field(default_factory=list)

    @property
    def probability(self) -> float:
        """The score, by the name in a critic's result."""
        return self.score

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for json.dumps."""
        return asdict(self)


def read_question(
    knowledge: Any, response: Any, history: Any, *, context: Any, answer: Any, question: Any
) -> tuple[bool, list[Request]]:
    """Reads the arguments of one call, by their names or by the aliases context, answer, question.

    A question is a history with one turn.

    Raises:
        UserError: An argument is given twice or missing, or an item is wrong.
    """
    for name, value, alias in (
        ("knowledge or its alias context", knowledge, context),
        ("response or its alias answer", response, answer),
        ("history or question", history, question),
    ):
        if value is not None and alias is not None:
            raise UserError(f"two values for one argument: give {name}", hint="leave the alias out")
    names = Names(
        knowledge="knowledge" if context is None else "context",
        history="history" if question is None else "question",
        response="response" if answer is None else "answer",
    )
    knowledge = context if knowledge is None else knowledge
    response = answer if response is None else response
    history = question if history is None else history
    return read_requests(knowledge, response, history, number_passages, names)


def dialogue_requests(knowledge: Knowledge, turns: Sequence[tuple[str, str]]) -> tuple[int, list[int], list[Request]]:
    """Returns the number of turns, the positions of the assistant's turns, and a request for each of these."""
    passages, all_turns = read_passages("knowledge", knowledge), read_turns("turns", turns)
    places = [place for place, (speaker, _) in enumerate(all_turns) if (speaker or "").lower() in ASSISTANTS]
    if not places:
        speakers = ", ".join(sorted({speaker or "unnamed" for speaker, _ in all_turns})) or "none"
        problem = f"turns has no turn of the assistant; speakers: {speakers}"
        raise UserError(problem, hint='turns=[("user", "Where?"), ("assistant", "In twelve.")]')
    names = Names(history="turns", response="turns")
    requests = [
        read_request(passages, all_turns[place][1], all_turns[:place], place, number_passages, names)
        for place in places
    ]
    return len(all_turns), places, requests
