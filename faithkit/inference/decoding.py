"""The interface of engines: prompts, the settings of decoding, completions."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from faithkit.arguments import wrong
from faithkit.errors import UserError, shorten

GREEDY, BEAM, NUCLEUS = "greedy", "beam", "nucleus"
STRATEGIES = (GREEDY, BEAM, NUCLEUS)
LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """The settings of decoding: how the next token is chosen.

    Args:
        strategy: greedy, beam or nucleus.
        num_beams: For beam search.
        top_p: For nucleus sampling: draw from the likeliest tokens that reach this mass together (Holtzman et al.
            2020, "The Curious Case of Neural Text Degeneration").
        temperature: For nucleus sampling; above 1 flattens the distribution.
        repetition_penalty: Above 1 makes tokens that stand before less likely (Keskar et al. 2019, "CTRL").
        num_samples: Completions of a prompt; with beam search the best beams.
        seed: For nucleus sampling; a prompt's samples depend on it and on the prompt's id, and on nothing else.
    """

    strategy: str = GREEDY
    num_beams: int = 5
    top_p: float = 0.6
    temperature: float = 1.0
    max_new_tokens: int = 100
    min_new_tokens: int = 0
    repetition_penalty: float = 1.0
    num_samples: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise UserError(f"strategy is {shorten(self.strategy)}", hint=f"use one of {', '.join(STRATEGIES)}")
        for name, least in (("num_beams", 1), ("max_new_tokens", 1), ("num_samples", 1), ("min_new_tokens", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise UserError(f"{name} is {shorten(value)}", hint=f"use a whole number of {least} or more")
        if type(self.seed) is not int:
            raise UserError(f"seed is {shorten(self.seed)}", hint="use a whole number")
        for name, most in (("top_p", 1.0), ("temperature", LARGEST), ("repetition_penalty", LARGEST)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
                range_ = "above 0 and not above 1" if most == 1 else "above 0"
                raise UserError(f"{name} is {shorten(value)}", hint=f"use a number {range_}")
        if self.min_new_tokens > self.max_new_tokens:
            problem = f"min_new_tokens is {self.min_new_tokens}, max_new_tokens {self.max_new_tokens}"
            raise UserError(problem, hint="lower min_new_tokens")
        self._check_samples()

    def _check_samples(self) -> None:
        if self.strategy == GREEDY and self.num_samples > 1:
            problem = f"{self.num_samples} samples of greedy decoding would all be the same"
            raise UserError(problem, hint="use nucleus, or beam with as many beams")
        if self.strategy == BEAM and self.num_samples > self.num_beams:
            problem = f"{self.num_samples} samples of {self.num_beams} beams"
            raise UserError(problem, hint="raise num_beams, or use nucleus")


def read_decoding(decoding: Any) -> Decoding | None:
    """Reads the settings that a caller passes; None stays None."""
    if decoding is None or isinstance(decoding, Decoding):
        return decoding
    hint = 'from faithkit.inference.decoding import Decoding; decoding=Decoding(strategy="nucleus")'
    raise wrong("decoding", "a Decoding", decoding, hint)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids that the model reads before it writes; without padding."""

    id: str
    ids: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Completion:
    """A text that the model wrote to a prompt.

    Args:
        id: The prompt's.
        sample: Number among the prompt's completions, from 0.
        ids: Its tokens, without the prompt and the end token.
        logprob: Sum of the tokens' log-probabilities, the end token's too, under the model's own distribution:
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
        """Its name on the command line (`engine=`)."""
        ...

    @property
    def device(self) -> str:
        """The kind of device that it runs on."""
        ...

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
        """Yields the completions as they end, in any order."""
        ...


def check_prompts(prompts: Sequence[Prompt]) -> None:
    """Refuses prompts that cannot be told apart, and empty ones."""
    if len({prompt.id for prompt in prompts}) < len(prompts):
        seen: set[str] = set()
        twice = next(p.id for p in prompts if p.id in seen or seen.add(p.id))  # type: ignore[func-returns-value]
        raise UserError(f"two prompts have the id {shorten(twice)}", hint="make the ids of the data unique")
    empty = [prompt.id for prompt in prompts if not len(prompt.ids)]
    if empty:
        raise UserError(f"the prompt {shorten(empty[0])} has no tokens", hint="give the model something to read")
