"""The interfaces of engines: `Engine` decodes the tokens of prompts, `TextEngine` reads messages and writes text.

`Decoding` has the settings of decoding for both.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from faithkit import arguments
from faithkit.arguments import wrong
from faithkit.errors import UserError, shorten
from faithkit.settings.check import options
from faithkit.settings.types import PRECISIONS, Conflict, Count, NonNegativeInt, OneOf, Positive, PositiveShare, Seed

if TYPE_CHECKING:
    # the command line is checked with `Decoding`, before anything heavy is imported
    import numpy as np
    from numpy.typing import NDArray

GREEDY, BEAM, NUCLEUS = "greedy", "beam", "nucleus"
STRATEGIES = (GREEDY, BEAM, NUCLEUS)
SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
AUTO, TRANSFORMERS, VLLM, OPENAI = "auto", "transformers", "vllm", "openai"
ENGINES = (AUTO, TRANSFORMERS, VLLM, OPENAI)


@options()
class Decoding:
    """The settings of decoding: how the next token is chosen.

    Args:
        strategy: greedy, beam or nucleus.
        num_beams: For beam search.
        top_p: For nucleus sampling: draw from the likeliest tokens that reach this mass together (Holtzman et al.
            2020, "The Curious Case of Neural Text Degeneration").
        temperature: For nucleus sampling; above 1 flattens the distribution.
        repetition_penalty: Above 1 makes tokens that occurred before less likely (Keskar et al. 2019, "CTRL").
        num_samples: Completions of a prompt; with beam search the best beams.
        seed: For nucleus sampling; a prompt's samples depend on it and on the prompt's id, and on nothing else.
    """

    strategy: Annotated[str, OneOf(STRATEGIES)] = GREEDY
    num_beams: Count = 5
    top_p: PositiveShare = 0.6
    temperature: Positive = 1.0
    max_new_tokens: Count = 100
    min_new_tokens: NonNegativeInt = 0
    repetition_penalty: Positive = 1.0
    num_samples: Count = 1
    seed: Seed = 0

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            lambda s: s.min_new_tokens > s.max_new_tokens,
            "min_new_tokens is {s.min_new_tokens}, max_new_tokens {s.max_new_tokens}",
            "lower min_new_tokens",
        ),
        Conflict(
            lambda s: s.strategy == GREEDY and s.num_samples > 1,
            "{s.num_samples} samples of greedy decoding would all be the same",
            "use nucleus, or beam with as many beams",
        ),
        Conflict(
            lambda s: s.strategy == BEAM and s.num_samples > s.num_beams,
            "{s.num_samples} samples of {s.num_beams} beams",
            "raise num_beams, or use nucleus",
        ),
    )


def seed_of(*names: object, size: int) -> int:
    """Computes a seed of `size` bytes from the names of a sample, so that it does not depend on the other samples."""
    name = "\n".join(map(str, names)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(name, digest_size=size).digest())


def read_decoding(decoding: Any) -> Decoding | None:
    """Reads the settings that a caller passes; None stays None."""
    if decoding is None or isinstance(decoding, Decoding):
        return decoding
    hint = 'from faithkit.inference.text import Decoding; decoding=Decoding(strategy="nucleus")'
    raise wrong("decoding", "a Decoding", decoding, hint)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids that the model reads before it writes; without padding."""

    id: str
    ids: "NDArray[np.int32]"


@dataclass(frozen=True, slots=True)
class Completion:
    """A text that the model wrote to a prompt.

    Args:
        id: The prompt's.
        sample: Number among the prompt's completions, from 0.
        ids: Its tokens, without the prompt and the end token.
        logprob: Sum of the tokens' log-probabilities, the end token's too, under the model's distribution
            before temperature, nucleus and penalty.
        finished: It ended with the end token; otherwise it was cut at max_new_tokens.
    """

    id: str
    sample: int
    ids: tuple[int, ...]
    logprob: float
    finished: bool


class Engine(Protocol):
    """Runs a language model: token ids in, token ids and log-probabilities out."""

    @property
    def name(self) -> str:
        """Its name in `engine=`."""
        ...

    @property
    def device(self) -> str:
        """The kind of device that it runs on."""
        ...

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
        """Yields the completions as they end, in any order."""
        ...

    def next_probabilities(
        self, prompts: Sequence[Prompt], tokens: Sequence[int]
    ) -> "Iterator[tuple[str, NDArray[np.float64]]]":
        """Yields for each prompt how probable each of some tokens is as the next one, relative to the others."""
        ...


def check_prompts(prompts: Sequence[Prompt]) -> None:
    """Checks that prompts have unique ids and are not empty."""
    check_unique_ids("prompts", prompts)
    empty = [prompt.id for prompt in prompts if not len(prompt.ids)]
    if empty:
        raise UserError(f"the prompt {shorten(empty[0])} has no tokens", hint="give the model something to read")


def check_unique_ids(what: str, items: "Sequence[Prompt] | Sequence[Request]") -> None:
    """Checks that the ids of prompts or requests are unique."""
    twice = [id_ for id_, count in Counter(item.id for item in items).items() if count > 1]
    if twice:
        raise UserError(f"two {what} have the id {shorten(twice[0])}", hint="make the ids of the data unique")


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
