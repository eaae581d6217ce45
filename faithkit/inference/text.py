"""The interface of engines that read messages and write text: models on this machine and servers alike.

Below it, for models on this machine, stands `faithkit.inference.decoding`, which decodes by tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from faithkit.errors import UserError, shorten
from faithkit.inference.decoding import Decoding

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
AUTO, TRANSFORMERS, VLLM, OPENAI = "auto", "transformers", "vllm", "openai"
ENGINES = (AUTO, TRANSFORMERS, VLLM, OPENAI)


@dataclass(frozen=True, slots=True)
class Message:
    """A message of one side of the talk.

    Args:
        role: SYSTEM, USER or ASSISTANT.
    """

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a model: messages that it is to answer.

    Args:
        id: Finds the reply; unique among the requests of a call.
    """

    id: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form that a reply must have; an engine that cannot hold a model to it leaves it out.

    Args:
        choices: The reply is one of these.
        schema: The reply is JSON of this schema.
    """

    choices: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model's answer to a request, or the reason why there is none.

    Args:
        id: The request's.
        texts: One for each sample; none where only probabilities were asked for.
        finished: Of each text, whether the model ended it; otherwise it was cut at `max_new_tokens`.
        probabilities: Of each choice, relative to the others; empty where the engine cannot tell.
        prompt_tokens: That were read, as the engine counts them.
        new_tokens: That were written.
        problem: Why there is no reply: a counted outcome, which is never read as an answer.
    """

    id: str
    texts: tuple[str, ...] = ()
    finished: tuple[bool, ...] = ()
    probabilities: Mapping[str, float] = field(default_factory=dict)
    prompt_tokens: int = 0
    new_tokens: int = 0
    problem: str = ""


class TextEngine(Protocol):
    """Runs a language model, or asks a server that does.

    A request that fails gives a reply with a `problem`; it never shifts or stops the others. What concerns all requests
    alike (a server that refuses the key, a model that it does not have) raises `UserError`.
    """

    @property
    def identity(self) -> str:
        """Names engine, model and weights: an equal request with equal settings gets the same reply from its equal."""
        ...

    def generate(self, requests: Sequence[Request], decoding: Decoding, form: Form | None = None) -> Iterator[Reply]:
        """Yields a reply to each request as it ends, in any order; a text for each of `decoding.num_samples`."""
        ...

    def weigh(self, requests: Sequence[Request], choices: Sequence[str]) -> Iterator[Reply]:
        """Yields for each request the probability that the reply begins with each of the choices, in any order.

        They are relative to each other: their sum is 1. An engine without log-probabilities gives none.
        """
        ...


def check_requests(requests: Sequence[Request]) -> None:
    """Refuses requests that cannot be told apart."""
    seen: set[str] = set()
    for request in requests:
        if request.id in seen:
            problem = f"two requests have the id {shorten(request.id)}"
            raise UserError(problem, hint="make the ids of the data unique")
        seen.add(request.id)
