"""The interface of engines that read messages and write text: local models and servers.

Local models use `faithkit.inference.decoding`, the interface of engines that decode tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from faithkit import arguments
from faithkit.inference.decoding import Decoding, check_unique_ids
from faithkit.settings.types import PRECISIONS

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
AUTO, TRANSFORMERS, VLLM, OPENAI = "auto", "transformers", "vllm", "openai"
ENGINES = (AUTO, TRANSFORMERS, VLLM, OPENAI)


@dataclass(frozen=True, slots=True)
class Message:
    """A message of one speaker.

    Args:
        role: SYSTEM, USER or ASSISTANT.
    """

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """Messages for a model to answer.

    Args:
        id: Finds the reply; unique among the requests of a call.
        template: Variables of the model's chat template besides the messages, such as `documents`.
    """

    id: str
    messages: tuple[Message, ...]
    template: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The required form of a reply; engines that cannot enforce it ignore it.

    Args:
        choices: The reply is one of these.
        schema: The reply is JSON of this schema.
    """

    choices: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model's answer to a request, or the problem instead.

    Args:
        id: The request's.
        texts: One for each sample; none if only probabilities were requested.
        finished: Whether the model finished each text; otherwise it was cut at `max_new_tokens`.
        probabilities: Of each choice, relative to the others; empty if the engine has none.
        prompt_tokens: Tokens read, as counted by the engine.
        new_tokens: Tokens written.
        problem: Why there is no reply: a counted outcome that is never read as an answer.
    """

    id: str
    texts: tuple[str, ...] = ()
    finished: tuple[bool, ...] = ()
    probabilities: Mapping[str, float] = field(default_factory=dict)
    prompt_tokens: int = 0
    new_tokens: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """Options of running a model on this machine.

    Args:
        engine: TRANSFORMERS, or VLLM where it is installed.
        precision: 32-true, bf16, or auto: bf16 where the hardware computes in it.
        device: `cuda`, `cpu`, ...; None takes the GPU where there is one.
        batch_size: Texts at a time; changes the speed, not the texts.
        max_length: Tokens of prompt and answer together; None for as many as the model has places for.
        memory_fraction: Of a GPU's memory for weights, keys and values, in vLLM.
        num_gpus: That share the model in vLLM, each with a part of every layer (tensor parallel).
    """

    engine: str = TRANSFORMERS
    precision: str = "auto"
    device: str | None = None
    batch_size: int | None = None
    max_length: int | None = None
    memory_fraction: float | None = None
    num_gpus: int = 1

    def __post_init__(self) -> None:
        arguments.read_choice("engine", self.engine, (TRANSFORMERS, VLLM))
        arguments.read_choice("precision", self.precision, PRECISIONS)
        arguments.read_count("batch_size", self.batch_size)
        arguments.read_count("max_length", self.max_length)
        arguments.read_probability("memory_fraction", self.memory_fraction)
        arguments.read_count("num_gpus", self.num_gpus)


class TextEngine(Protocol):
    """Runs a language model, or asks a server.

    A failed request gets a reply with a `problem` and does not affect the others. Errors of all requests (a refused
    key, an unknown model) raise `UserError`.
    """

    @property
    def identity(self) -> str:
        """Identifies engine, model and weights: equal requests and settings get the same reply."""
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
    """Checks that the ids of requests are unique."""
    check_unique_ids("requests", [request.id for request in requests])
