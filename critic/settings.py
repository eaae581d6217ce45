"""Settings of a critic that are stored beside its weights."""

from dataclasses import asdict, dataclass
from typing import Any

from critic.score_calibration import ScoreCalibration
from faithkit.errors import UserError
from faithkit.files.model_folder import CRITIC, Sidecar
from faithkit.records import FAITHFUL, HALLUCINATED, LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that the weights were trained and calibrated with.

    Args:
        max_length: Tokens of a sequence.
        order: Which text stands first.
        origin: Provenance: base weights, data and its fingerprint, versions.
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


def foreign_settings(config: Any, folder: str) -> Settings:
    """Settings of a classifier without our sidecar, whose labels must be ours."""
    labels = {str(label).lower(): index for index, label in config.id2label.items()}
    if labels != {FAITHFUL: 0, HALLUCINATED: 1}:
        have = ", ".join(labels)
        hint = f"give a critic of ours: labels {FAITHFUL} and {HALLUCINATED}"
        raise UserError(f"a checkpoint of another kind: its labels are {have}", place=folder, hint=hint)
    longest = min(512, getattr(config, "max_position_embeddings", 512) - 2)
    return Settings(max_length=longest, order="knowledge_response", calibration=ScoreCalibration(), origin={})
