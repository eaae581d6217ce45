"""The settings of a critic that are stored with its weights."""

import logging
from dataclasses import asdict, dataclass
from typing import Any

from critic.sequence.evidence import EVIDENCE, NAMES, TOKEN_WEIGHTS
from data_modules.encoding.sequence_layout import ORDERS
from faithkit.arguments import check_mapping, check_names, check_number, check_numbers, check_text
from faithkit.calibration.score_calibration import ScoreCalibration
from faithkit.detector import CRITIC
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import SIDECAR, Sidecar
from faithkit.records import LABELS

MAX_LENGTH = 1_000_000  # tokens; more than any encoder reads
MAX_WEIGHT = 1e6  # far above fitted weights

log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that the weights were trained and calibrated with.

    Args:
        max_length: Tokens of a sequence.
        order: Order of the two texts.
        max_knowledge_words: Words read of longer knowledge (`data_modules.encoding.pair_encoder`); None reads all.
        evidence: Weights of the evidence features (`critic.sequence.evidence.NAMES`); empty without evidence.
        origin: Provenance: base weights, data and its fingerprint, versions.
    """

    max_length: int
    order: str
    max_knowledge_words: int | None = None
    evidence: tuple[float, ...] = ()
    calibration: ScoreCalibration
    origin: dict[str, Any]

    def __post_init__(self) -> None:
        check_number("layout.max_length", self.max_length, 1, MAX_LENGTH, whole=True)
        check_text("layout.order", self.order, ORDERS)
        if self.max_knowledge_words is not None:
            check_number("layout.max_knowledge_words", self.max_knowledge_words, 1, MAX_LENGTH, whole=True)
        check_numbers(EVIDENCE, self.evidence, -MAX_WEIGHT, MAX_WEIGHT)
        if len(self.evidence) not in (0, *NAMES):
            raise UserError(f"{EVIDENCE} has {len(self.evidence)} numbers, wanted {' or '.join(map(str, NAMES))}")
        object.__setattr__(self, "evidence", tuple(float(weight) for weight in self.evidence))
        check_mapping("origin", self.origin)

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
        if self.max_knowledge_words is not None:
            layout["max_knowledge_words"] = self.max_knowledge_words
        thresholds = asdict(self.calibration)
        if self.evidence:
            thresholds[EVIDENCE] = list(self.evidence)
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
        evidence = thresholds.pop(EVIDENCE, ())
        check_names("thresholds", thresholds, ScoreCalibration)
        return cls(
            max_length=sidecar.layout["max_length"],
            order=sidecar.layout["order"],
            max_knowledge_words=sidecar.layout.get("max_knowledge_words"),
            evidence=evidence,
            calibration=ScoreCalibration(**thresholds),
            origin=sidecar.origin,
        )


def foreign_settings(config: Any, folder: str) -> Settings:
    """Returns the settings of a classifier without faithkit.json."""
    log.warning("%s has no %s: its probabilities are uncalibrated and its threshold is 0.5", folder, SIDECAR)
    longest = min(512, getattr(config, "max_position_embeddings", 512) - 2)
    return Settings(max_length=longest, order="knowledge_response", calibration=ScoreCalibration(), origin={})
