"""The options of a generator (the block `model`), apart from its code, which needs torch."""

from typing import Annotated, ClassVar

from data_modules.encoding.sequence_layout import CAUSAL, SEQ2SEQ, TOO_SHORT, ResponseLength, SequenceLength
from faithkit.settings.check import options
from faithkit.settings.types import (
    Conflict,
    NonNegativeInt,
    OneOf,
    PartialShare,
    Switch,
    Text,
)

ARCHITECTURE_NAMES = ("seq2seq", "causal", "doha")  # the keys of generation.weights.ARCHITECTURES, without torch


@options("model")
class GeneratorOptions:
    """Options of every `model=` that writes.

    Args:
        architecture: A key of `generation.weights.ARCHITECTURES`.
        weights: A folder (of a generator of ours too), hub name or local name.
        max_length: Tokens that the model reads: see `data_modules.encoding.sequence_layout`.
        max_response_length: Tokens of a response.
        max_history: Turns at most; None for all that fit.
        packed: Causal models: sequences without padding.
        dropout: Dropout of the model; None keeps its default.
        attention_dropout: The same for attention alone.
        gradient_checkpointing: Trades time for memory.
    """

    architecture: Annotated[str, OneOf(ARCHITECTURE_NAMES)]
    weights: Text
    max_length: SequenceLength
    max_response_length: ResponseLength
    max_history: NonNegativeInt | None = None
    packed: Switch = False
    dropout: PartialShare | None = None
    attention_dropout: PartialShare | None = None
    gradient_checkpointing: Switch = False

    conflicts: ClassVar[tuple[Conflict, ...]] = (TOO_SHORT,)

    @property
    def kind(self) -> str:
        """The kind of its sequences."""
        return CAUSAL if self.architecture == "causal" else SEQ2SEQ
