"""Settings of a tagger that are stored beside its weights."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from critic.tagger.span_calibration import SpanCalibration
from faithkit.errors import UserError
from faithkit.files.model_folder import TAGGER, Sidecar
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit.span_types import TYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that the weights were trained and calibrated with.

    Args:
        labels: Names of the classes: outside, then hallucinated or its types.
        max_length: Tokens of a window.
        calibration: Turns log-odds into spans.
        origin: Provenance: base weights, data and its fingerprint, versions.
    """

    labels: tuple[str, ...]
    max_length: int
    calibration: SpanCalibration
    origin: dict[str, Any]

    def to_sidecar(self) -> Sidecar:
        return Sidecar(
            kind=TAGGER,
            labels=list(self.labels),
            layout={"max_length": self.max_length},
            thresholds=asdict(self.calibration),
            origin=self.origin,
        )

    @classmethod
    def from_sidecar(cls, sidecar: Sidecar) -> "Settings":
        wrong = {field.name for field in fields(SpanCalibration)} ^ sidecar.thresholds.keys()
        if wrong:
            raise ValueError(f"thresholds lacks or should not have {', '.join(sorted(wrong))}")
        return cls(
            labels=tuple(sidecar.labels),
            max_length=int(sidecar.layout["max_length"]),
            calibration=SpanCalibration(**sidecar.thresholds),
            origin=sidecar.origin,
        )


def tagger_labels(typed: bool) -> tuple[str, ...]:
    """Labels of the classes of a head with or without types."""
    return (FAITHFUL, *TYPES) if typed else (FAITHFUL, HALLUCINATED)


def foreign_settings(config: Any, path: str) -> Settings:
    """Reads a tagger without our sidecar by its number of labels, outside first."""
    architecture = (config.architectures or ["ForTokenClassification"])[0]
    if not architecture.endswith("ForTokenClassification"):
        hint = "give a tagger of ours, or train one from these weights"
        raise UserError(f"no token classifier: these are the weights of {architecture}", place=path, hint=hint)
    if config.num_labels not in (2, len(tagger_labels(True))):
        have = ", ".join(map(str, config.id2label.values()))
        hint = "give a tagger of ours, or one whose first label is outside and whose second is hallucinated"
        raise UserError(f"a checkpoint of another kind: its labels are {have}", place=path, hint=hint)
    longest = min(4096, getattr(config, "max_position_embeddings", 512) - 2)
    return Settings(
        labels=tuple(config.id2label.values()), max_length=longest, calibration=SpanCalibration(), origin={}
    )
