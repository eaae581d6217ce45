"""The settings that a sequence critic needs beside its weights."""

from dataclasses import asdict, dataclass
from typing import Any

from critic.score_calibration import ScoreCalibration
from faithkit.files.model_folder import CRITIC, Sidecar
from faithkit.records import LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings under which the weights were trained, and must be used.

    Args:
        max_length: Tokens of a sequence.
        order: Which text stands first.
        origin: Where this came from: base weights, data and its fingerprint, versions.
    """

    max_length: int
    order: str
    calibration: ScoreCalibration
    origin: dict[str, Any]

    def to_sidecar(self) -> Sidecar:
        return Sidecar(
            kind=CRITIC,
            labels=list(LABELS),
            layout={"order": self.order, "max_length": self.max_length},
            thresholds=asdict(self.calibration),
            origin=self.origin,
        )

    @classmethod
    def from_sidecar(cls, sidecar: Sidecar) -> "Settings":
        return cls(
            max_length=int(sidecar.layout["max_length"]),
            order=sidecar.layout["order"],
            calibration=ScoreCalibration(**sidecar.thresholds),
            origin=sidecar.origin,
        )
