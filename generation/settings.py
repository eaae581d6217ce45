"""The settings of a generator that are stored with its weights."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from data_modules.encoding.sequence_layout import CONTROL_TOKENS, KNOWLEDGE, SEEKER, WIZARD, TurnLayout
from faithkit.arguments import check_mapping, check_names, check_numbers, check_text, check_texts
from faithkit.detector import GENERATOR
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import Sidecar
from generation.weights import ARCHITECTURES


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
