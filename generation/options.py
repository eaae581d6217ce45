"""The options of a generator (the block `model`), apart from its code, which needs torch."""

import importlib
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

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


@dataclass(frozen=True, slots=True)
class Architecture:
    """A family of models with the same class and layout of turns.

    Args:
        kind: SEQ2SEQ or CAUSAL, the layout that it reads.
        loader: Name of the class that loads it.
        heads: Endings of the model class names that belong to it.
        choice: The option that selects it on the command line.
        module: Where the class is.
    """

    kind: str
    loader: str
    heads: tuple[str, ...]
    choice: str
    module: str = "transformers"

    @property
    def model_class(self) -> Any:
        return getattr(importlib.import_module(self.module), self.loader)

    @property
    def config_class(self) -> Any:
        from transformers import AutoConfig

        return getattr(self.model_class, "config_class", AutoConfig)

    @property
    def is_internal(self) -> bool:
        """Whether the class is in this package, not in transformers."""
        return self.module != "transformers"


DOHA = "DohaForConditionalGeneration"
BART = "BartModel"  # facebook/bart-base names it: its head is the embeddings, so that nothing is missing
ARCHITECTURES = {
    "seq2seq": Architecture(SEQ2SEQ, "AutoModelForSeq2SeqLM", ("ForConditionalGeneration", BART), "model=t5"),
    "causal": Architecture(CAUSAL, "AutoModelForCausalLM", ("ForCausalLM", "LMHeadModel"), "model=gpt2"),
    "doha": Architecture(SEQ2SEQ, DOHA, ("BartForConditionalGeneration", BART), "model=doha", "generation.doha"),
}


@options("model")
class GeneratorOptions:
    """Options of every `model=` that writes.

    Args:
        architecture: A key of ARCHITECTURES.
        weights: A folder (of a generator of ours too), hub name or local name.
        max_length: Tokens that the model reads: see `data_modules.encoding.sequence_layout`.
        max_response_length: Tokens of a response.
        max_history: Turns at most; None for all that fit.
        packed: Causal models: sequences without padding.
        dropout: Dropout of the model; None keeps its default.
        attention_dropout: The same for attention alone.
        gradient_checkpointing: Trades time for memory.
    """

    architecture: Annotated[str, OneOf(tuple(ARCHITECTURES))]
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
