"""The settings that a tagger needs beside its weights."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from critic.tagger.span_calibration import SpanCalibration
from faithkit.files.model_folder import TAGGER, Sidecar
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit.span_types import TYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings under which the weights were trained, and must be used.

    Args:
        labels: Of the classes: outside, then hallucinated or its types.
        max_length: Tokens of a window.
        calibration: How log-odds become spans.
        origin: Where this came from: base weights, data and its fingerprint, versions.
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
