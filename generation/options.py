"""A generator's hyperparameters: what it takes of the block `model`."""

from dataclasses import dataclass

from faithkit.errors import UserError
from generation.weights import ARCHITECTURES


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions:
    """Options of every `model=` that writes; `data_modules.encoding.turn_layout` checks the lengths.

    Args:
        architecture: A key of `generation.weights.ARCHITECTURES`.
        weights: A folder (of a generator of ours too), hub name or local name.
        max_length: Tokens that the model reads: see `data_modules.encoding.turn_layout`.
        max_response_length: Tokens of a response.
        max_history: Turns at most; None for all that fit.
        packed: Causal models: sequences without padding.
        dropout: Overrides the model's own; None keeps it.
        attention_dropout: The same for attention alone.
        gradient_checkpointing: Trades time for memory.
    """

    architecture: str
    weights: str
    max_length: int
    max_response_length: int
    max_history: int | None = None
    packed: bool = False
    dropout: float | None = None
    attention_dropout: float | None = None
    gradient_checkpointing: bool = False

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            hint = f"use one of {', '.join(ARCHITECTURES)}"
            raise UserError(f"model.architecture is {self.architecture!r}", hint=hint)
