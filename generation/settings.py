"""A generator's settings: all that its sidecar stores beside the weights."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from data_modules.encoding.turn_layout import KNOWLEDGE, SEEKER, WIZARD, TurnLayout
from faithkit.files.model_folder import GENERATOR, Sidecar


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

    def to_sidecar(self) -> Sidecar:
        """Gives the settings in the form that `faithkit.json` stores."""
        layout = asdict(self.layout) | {"control": list(self.layout.control), "architecture": self.architecture}
        layout["markers"] = {"knowledge": KNOWLEDGE, "seeker": SEEKER, "wizard": WIZARD}
        return Sidecar(kind=GENERATOR, labels=[], layout=layout, thresholds=self.thresholds, origin=self.origin)

    @classmethod
    def from_sidecar(cls, sidecar: Sidecar) -> "Settings":
        """Reads the settings back from a stored sidecar."""
        stored = {field.name: sidecar.layout[field.name] for field in fields(TurnLayout)}
        return cls(
            layout=TurnLayout(**{**stored, "control": tuple(stored["control"])}),
            architecture=sidecar.layout["architecture"],
            thresholds=sidecar.thresholds,
            origin=sidecar.origin,
        )
