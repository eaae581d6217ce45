"""The settings of a critic that are stored with its weights."""

from dataclasses import asdict
from typing import Annotated, Any

from critic.weights import EVIDENCE, HEAD, Line
from data_modules.encoding.pair_encoder import EVIDENCE as COLUMNS
from data_modules.encoding.pair_encoder import RUNS
from data_modules.encoding.sequence_layout import ORDERS
from faithkit.calibration import ScoreCalibration
from faithkit.detector import CRITIC
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import Sidecar
from faithkit.records import LABELS
from faithkit.settings.check import check_value, options, read_stored
from faithkit.settings.types import Count, OneOf, Sizes, Tokens, Weights

WEIGHTS = ("own log-odds", *COLUMNS, "bias")
TOKEN_WEIGHTS = (*WEIGHTS[:-1], RUNS, "evidence: weakest tokens", "bias")
WEIGHT_NAMES = {len(names): names for names in (WEIGHTS, TOKEN_WEIGHTS)}  # a list is identified by its length
Evidence = Annotated[Weights, Sizes((0, *WEIGHT_NAMES))]


@options("layout")
class Settings:
    """Settings that the weights were trained and calibrated with.

    Args:
        max_length: Tokens of a sequence.
        order: Order of the two texts.
        max_knowledge_words: Words read of longer knowledge (`data_modules.encoding.pair_encoder`); None reads all.
        max_windows: Windows read of long knowledge, when the threshold was fitted too; None reads all.
        evidence: Weights of the evidence features, by WEIGHT_NAMES; empty without evidence.
        head: Slope and bias of the calibration that the head contains (`critic.weights.rescale_head`); empty if the
            calibration is outside the weights.
        origin: Provenance: base weights, data and its fingerprint, versions.
    """

    max_length: Tokens
    order: Annotated[str, OneOf(ORDERS)]
    max_knowledge_words: Count | None = None
    max_windows: Count | None = None
    evidence: Evidence = ()
    head: Line = ()
    calibration: ScoreCalibration
    origin: dict[str, Any]

    @property
    def reads_tokens(self) -> bool:
        """Whether the weakest tokens are among the features."""
        return len(self.evidence) == len(TOKEN_WEIGHTS)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes, always the same."""
        return LABELS

    def to_sidecar(self) -> Sidecar:
        layout: dict[str, Any] = {"order": self.order, "max_length": self.max_length}
        limits = {"max_knowledge_words": self.max_knowledge_words, "max_windows": self.max_windows}
        layout |= {name: limit for name, limit in limits.items() if limit is not None}
        thresholds = asdict(self.calibration)
        if self.evidence:
            thresholds[EVIDENCE] = list(self.evidence)
        if self.head:
            thresholds[HEAD] = list(self.head)
        return Sidecar(
            kind=CRITIC,
            labels=list(LABELS),
            layout=layout,
            thresholds=thresholds,
            origin=self.origin,
        )

    @classmethod
    def from_sidecar(cls, sidecar: Sidecar) -> "Settings":
        if tuple(sidecar.labels) != LABELS:
            raise UserError(f"labels are {shorten(sidecar.labels)}, and a critic's are {', '.join(LABELS)}")
        thresholds = dict(sidecar.thresholds)
        evidence, head = thresholds.pop(EVIDENCE, []), thresholds.pop(HEAD, [])
        check_value(f"thresholds.{EVIDENCE}", evidence, Evidence)
        check_value(f"thresholds.{HEAD}", head, Line)
        values = {**sidecar.layout, "evidence": evidence, "head": head, "origin": sidecar.origin}
        values["calibration"] = read_stored(ScoreCalibration, thresholds, "thresholds")
        return read_stored(cls, values, "layout", complete=False)
