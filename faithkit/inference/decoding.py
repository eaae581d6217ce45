"""The interface of engines: prompts, the settings of decoding, completions."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from faithkit.arguments import wrong
from faithkit.errors import UserError, shorten
from faithkit.settings.check import options
from faithkit.settings.types import Conflict, Count, NonNegativeInt, OneOf, Positive, PositiveShare, Seed

if TYPE_CHECKING:  # the command line is checked with `Decoding`, before anything heavy is imported
    import numpy as np
    from numpy.typing import NDArray

GREEDY, BEAM, NUCLEUS = "greedy", "beam", "nucleus"
STRATEGIES = (GREEDY, BEAM, NUCLEUS)


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
    hint = 'from faithkit.inference.decoding import Decoding; decoding=Decoding(strategy="nucleus")'
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
    check_unique_ids("prompts", [prompt.id for prompt in prompts])
    empty = [prompt.id for prompt in prompts if not len(prompt.ids)]
    if empty:
        raise UserError(f"the prompt {shorten(empty[0])} has no tokens", hint="give the model something to read")


def check_unique_ids(what: str, ids: Sequence[str]) -> None:
    """Checks that ids are unique."""
    twice = [id_ for id_, count in Counter(ids).items() if count > 1]
    if twice:
        raise UserError(f"two {what} have the id {shorten(twice[0])}", hint="make the ids of the data unique")
