"""The options of training a critic, and the settings that are stored with its weights."""

import logging
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

from critic.sequence.evidence import EVIDENCE, NAMES, TOKEN_WEIGHTS
from data_modules.encoding.sequence_layout import ORDERS
from faithkit.arguments import check_mapping, check_names, check_number, check_numbers, check_text
from faithkit.calibration.score_calibration import ScoreCalibration
from faithkit.detector import CRITIC
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import SIDECAR, Sidecar
from faithkit.records import LABELS
from faithkit.settings.check import check_fields
from faithkit.settings.types import Conflict, Count, NonNegative, OneOf, PartialShare, Switch, Text, Tokens
from faithkit.training.training_options import Aim

WORDS, WORDS_AND_TOKENS = "words", "words_and_tokens"  # true means words
MAX_LENGTH = 1_000_000  # tokens; more than any encoder reads
MAX_WEIGHT = 1e6  # far above fitted weights

log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticOptions:
    """Options of `model=critic`. `PairEncoder` checks the minimum of max_length.

    Args:
        weights: A folder, hub name or local name of an encoder, or of a classifier to fine-tune further.
        max_length: Tokens of a sequence.
        order: Order of the two texts: knowledge_response or response_knowledge.
        max_knowledge_words: Words that are read of longer knowledge, in the sentences most similar to the response;
            None reads all.
        label_smoothing: Share of the target's probability that is divided equally between both classes.
        support_weight: Weight of the auxiliary loss of `critic.losses.overlap_supervision`; 0 leaves it out.
        span_weight: Weight of the auxiliary loss of `critic.losses.span_supervision`; 0 leaves it out.
        freeze_embeddings: Does not train the word embeddings.
        freeze_encoder: Trains the head alone.
        dropout: Dropout of the encoder; None keeps its default.
        gradient_checkpointing: Trades time for memory.
        evidence: Features that are combined with the encoder's log-odds (`critic.sequence.evidence`): words,
            words_and_tokens, or false.
        evidence_alone: Uses the evidence without the log-odds, and trains no network.
        threshold_aim: Metric that the decision threshold maximises on validation (`faithkit.calibration.thresholds`).
    """

    weights: Text
    max_length: Tokens = 256
    order: Annotated[str, OneOf(ORDERS)] = "knowledge_response"
    max_knowledge_words: Count | None = None
    label_smoothing: PartialShare = 0.0
    support_weight: NonNegative = 0.0
    span_weight: NonNegative = 0.0
    freeze_embeddings: Switch = False
    freeze_encoder: Switch = False
    dropout: PartialShare | None = None
    gradient_checkpointing: Switch = False
    evidence: Annotated[bool | str, OneOf((False, True, WORDS, WORDS_AND_TOKENS))] = False
    evidence_alone: Switch = False
    threshold_aim: Aim = "macro_f1"

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            lambda s: s.reads_tokens and not s.freeze_encoder,
            f"model.evidence={WORDS_AND_TOKENS} compares tokens by an encoder that must not be trained",
            "set model.freeze_encoder=true",
        ),
        Conflict(
            lambda s: s.evidence_alone and not (s.evidence and s.freeze_encoder),
            "model.evidence_alone=true trains no network, and weighs model.evidence alone",
            f"set model.evidence={WORDS_AND_TOKENS} model.freeze_encoder=true",
        ),
        *(
            Conflict(
                lambda s, key=key: s.evidence_alone and getattr(s, key),  # type: ignore[misc]
                f"model.{key} is a loss, and model.evidence_alone=true trains nothing",
                f"set model.{key}=0",
            )
            for key in ("support_weight", "span_weight")
        ),
    )

    def __post_init__(self) -> None:
        check_fields(self, "model")

    @property
    def reads_tokens(self) -> bool:
        """Whether the weakest tokens are among the evidence."""
        return self.evidence == WORDS_AND_TOKENS


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
