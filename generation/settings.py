"""The options of training a generator, and the settings that are stored with its weights."""

from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

from data_modules.encoding.sequence_layout import CAUSAL, CONTROL_TOKENS, KNOWLEDGE, SEEKER, SEQ2SEQ, WIZARD, TurnLayout
from faithkit.arguments import check_mapping, check_names, check_numbers, check_text, check_texts
from faithkit.detector import GENERATOR
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import Sidecar
from faithkit.settings.check import check_fields
from faithkit.settings.types import NonNegativeInt, OneOf, PartialShare, Switch, Text, Tokens
from generation.weights import ARCHITECTURES

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that a generator was trained with.

    Args:
        layout: How an example becomes a sequence.
        architecture: A key of `generation.weights.ARCHITECTURES`.
        thresholds: The boundaries of control features that training fitted, by group.
        origin: Base weights, data with their fingerprint, and versions.
    """

    layout: TurnLayout
    architecture: str
    thresholds: dict[str, Any]
    origin: dict[str, Any]

    def __post_init__(self) -> None:
        check_text("layout.architecture", self.architecture, ARCHITECTURES)
        if self.layout.kind != ARCHITECTURES[self.architecture].kind:
            raise UserError(f"layout.kind is {self.layout.kind!r}, and {self.architecture} models read no such layout")
        check_mapping("thresholds", self.thresholds)
        for group, boundaries in self.thresholds.items():
            check_text("thresholds", group, CONTROL_TOKENS)
            check_numbers(f"thresholds.{group}", boundaries, 0, 1)
            if len(boundaries) != len(CONTROL_TOKENS[group]) - 1:
                raise UserError(f"thresholds.{group} is {shorten(boundaries)}: not a boundary between each two levels")
        check_mapping("origin", self.origin)

    def to_sidecar(self) -> Sidecar:
        """Gives the settings in the form that `faithkit.json` stores."""
        layout = asdict(self.layout) | {"control": list(self.layout.control), "architecture": self.architecture}
        layout["markers"] = {"knowledge": KNOWLEDGE, "seeker": SEEKER, "wizard": WIZARD}
        return Sidecar(kind=GENERATOR, labels=[], layout=layout, thresholds=self.thresholds, origin=self.origin)

    @classmethod
    def from_sidecar(cls, sidecar: Sidecar) -> "Settings":
        """Reads the settings back from a stored sidecar."""
        check_names("layout", sidecar.layout, TurnLayout, others=("architecture", "markers"))
        stored = {field.name: sidecar.layout[field.name] for field in fields(TurnLayout)}
        check_texts("layout.control", stored["control"])
        return cls(
            layout=TurnLayout(**{**stored, "control": tuple(stored["control"])}),
            architecture=sidecar.layout["architecture"],
            thresholds=sidecar.thresholds,
            origin=sidecar.origin,
        )
