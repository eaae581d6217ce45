"""A generator's hyperparameters: what it takes of the block `model`."""

from dataclasses import dataclass
from typing import Annotated

from data_modules.encoding.sequence_layout import CAUSAL, SEQ2SEQ, TurnLayout
from faithkit.settings.check import check_fields
from faithkit.settings.types import NonNegativeInt, OneOf, PartialShare, Switch, Text, Tokens

ARCHITECTURE_NAMES = ("seq2seq", "causal", "doha")  # the keys of generation.weights.ARCHITECTURES, without torch


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions:
    """Options of every `model=` that writes; `data_modules.encoding.sequence_layout` checks the lengths.

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
    max_length: Tokens
    max_response_length: Tokens
    max_history: NonNegativeInt | None = None
    packed: Switch = False
    dropout: PartialShare | None = None
    attention_dropout: PartialShare | None = None
    gradient_checkpointing: Switch = False

    def __post_init__(self) -> None:
        check_fields(self, "model")
        TurnLayout(  # which checks the lengths against each other
            kind=CAUSAL if self.architecture == "causal" else SEQ2SEQ,
            max_length=self.max_length,
            max_response_length=self.max_response_length,
            max_history=self.max_history,
        )
