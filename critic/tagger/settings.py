"""The settings of a tagger that are stored with its weights."""

from dataclasses import asdict
from typing import Any

from critic.tagger.span_calibration import SpanCalibration
from critic.weights import HEAD, Line
from faithkit.detector import TAGGER
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import Sidecar
from faithkit.records import FAITHFUL, HALLUCINATED, SPAN_TYPES
from faithkit.settings.check import check_value, options, read_stored
from faithkit.settings.types import Count, Switch, Tokens


@options("layout")
class Settings:
    """Settings that the weights were trained and calibrated with.

    Args:
        labels: Names of the classes: outside, then hallucinated or its types.
        max_length: Tokens of a window.
        max_windows: Windows read of a long context, when the thresholds were fitted too; None reads all.
        token_support: The log-odds of tokens come from `critic.token_support` instead of the head.
        head: Slope and bias of the calibration that the head contains (`critic.weights.rescale_head`); empty if the
            calibration is outside the weights.
        calibration: Converts log-odds to spans.
        origin: Provenance: base weights, data and its fingerprint, versions.
    """

    labels: tuple[str, ...]
    max_length: Tokens
    max_windows: Count | None = None
    token_support: Switch = False
    head: Line = ()
    calibration: SpanCalibration
    origin: dict[str, Any]

    def to_sidecar(self) -> Sidecar:
        layout: dict[str, Any] = {"max_length": self.max_length}
        if self.max_windows is not None:
            layout["max_windows"] = self.max_windows
        if self.token_support:
            layout["token_support"] = True
        head = {HEAD: list(self.head)} if self.head else {}
        return Sidecar(
            kind=TAGGER,
            labels=list(self.labels),
            layout=layout,
            thresholds={**asdict(self.calibration), **head},
            origin=self.origin,
        )

    @classmethod
    def from_sidecar(cls, sidecar: Sidecar) -> "Settings":
        if tuple(sidecar.labels) not in (tagger_labels(True), tagger_labels(False)):
            raise UserError(f"labels are {shorten(sidecar.labels)}, which no tagger has")
        thresholds = dict(sidecar.thresholds)
        head = thresholds.pop(HEAD, [])
        check_value(f"thresholds.{HEAD}", head, Line)
        calibration = read_stored(SpanCalibration, thresholds, "thresholds")
        values = {"labels": tuple(sidecar.labels), "head": head, "calibration": calibration, "origin": sidecar.origin}
        return read_stored(cls, {**sidecar.layout, **values}, "layout", complete=False)


def tagger_labels(typed: bool) -> tuple[str, ...]:
    """Returns the labels of a head with or without types."""
    return (FAITHFUL, *SPAN_TYPES) if typed else (FAITHFUL, HALLUCINATED)
