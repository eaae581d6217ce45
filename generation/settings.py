"""What a generator needs beside its weights."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from data_modules.encoding.turn_layout import KNOWLEDGE, SEEKER, WIZARD, TurnLayout
from faithkit.files.model_folder import GENERATOR, Sidecar


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What must be known to use the weights as they were trained.

    Args:
        layout: How an example becomes a sequence.
        architecture: A key of `generation.weights.ARCHITECTURES`.
        thresholds: Of the control features, where there are any.
        origin: Where this came from: base weights, data and its fingerprint, versions.
    """

    layout: TurnLayout
    architecture: str
    thresholds: dict[str, Any]
    origin: dict[str, Any]

    def to_sidecar(self) -> Sidecar:
        layout = asdict(self.layout) | {"control": list(self.layout.control), "architecture": self.architecture}
        layout["markers"] = {"knowledge": KNOWLEDGE, "seeker": SEEKER, "wizard": WIZARD}
        return Sidecar(kind=GENERATOR, labels=[], layout=layout, thresholds=self.thresholds, origin=self.origin)

    @classmethod
    def from_sidecar(cls, sidecar: Sidecar) -> "Settings":
        stored = {field.name: sidecar.layout[field.name] for field in fields(TurnLayout)}
        return cls(
            layout=TurnLayout(**{**stored, "control": tuple(stored["control"])}),
            architecture=sidecar.layout["architecture"],
            thresholds=sidecar.thresholds,
            origin=sidecar.origin,
        )
