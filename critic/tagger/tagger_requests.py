"""Reads requests to a tagger, and defines its results."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from critic.requests import Knowledge, Names, Request, read_request, read_requests, request_of
from faithkit.arguments import ASSISTANTS, read_passages, read_turns
from faithkit.errors import UserError
from faithkit.records import number_passages

__all__ = ["Request", "Tagged", "TaggedSpan", "dialogue_requests", "read_question", "request_of"]


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
