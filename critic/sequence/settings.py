"""The settings of a critic: the block `model`, and those that are stored with its weights."""

import logging
from dataclasses import asdict
from typing import Annotated, Any, ClassVar

from critic.sequence.evidence import TOKEN_WEIGHTS, WEIGHT_NAMES
from critic.weights import EVIDENCE, HEAD, Line
from data_modules.encoding.sequence_layout import ORDERS
from faithkit.calibration import ScoreCalibration
from faithkit.detector import CRITIC
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import SIDECAR, Sidecar
from faithkit.records import LABELS
from faithkit.settings.check import check_value, options, read_stored
from faithkit.settings.types import (
    Conflict,
    Count,
    NonNegative,
    OneOf,
    PartialShare,
    Sizes,
    Switch,
    Text,
    Tokens,
    Weights,
)
from faithkit.training.training_options import Aim

log = logging.getLogger("faithkit")
Evidence = Annotated[Weights, Sizes((0, *WEIGHT_NAMES))]


@options("layout")
class Settings:
    """Settings that the weights were trained and calibrated with.

    Args:
        max_length: Tokens of a sequence.
        order: Order of the two texts.
        max_knowledge_words: Words read of longer knowledge (`data_modules.encoding.pair_encoder`); None reads all.
        max_windows: Windows read of long knowledge, when the threshold was fitted too; None reads all.
        evidence: Weights of the evidence features (`critic.sequence.evidence.WEIGHT_NAMES`); empty without evidence.
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


def foreign_settings(config: Any, folder: str) -> Settings:
    """Returns the settings of a classifier without faithkit.json."""
    log.warning("%s has no %s: its probabilities are uncalibrated and its threshold is 0.5", folder, SIDECAR)
    longest = min(512, getattr(config, "max_position_embeddings", 512) - 2)
    return Settings(max_length=longest, order="knowledge_response", calibration=ScoreCalibration(), origin={})


WORDS, WORDS_AND_TOKENS = "words", "words_and_tokens"  # true means words


@options("model")
class CriticOptions:
    """Options of `model=critic`. `PairEncoder` checks the minimum of max_length.

    Args:
        weights: A folder, hub name or local name of an encoder, or of a classifier to fine-tune further.
        max_length: Tokens of a sequence.
        order: Order of the two texts: knowledge_response or response_knowledge.
        max_knowledge_words: Words that are read of longer knowledge, in the sentences most similar to the response;
            None reads all.
        max_windows: Windows that are read of longer knowledge, those that share most with the response; None reads all.
        label_smoothing: Share of the target's probability that is divided equally between both classes.
        support_weight: Weight of overlap supervision (`critic.auxiliary_losses`); 0 leaves it out.
        span_weight: Weight of span supervision (`critic.auxiliary_losses`); 0 leaves it out.
        freeze_embeddings: Does not train the word embeddings.
        freeze_encoder: Trains the head alone.
        dropout: Dropout of the encoder; None keeps its default.
        gradient_checkpointing: Trades time for memory.
        evidence: Features that are combined with the encoder's log-odds (`critic.sequence.evidence`): words,
            words_and_tokens, or false.
        evidence_alone: Uses the evidence without the log-odds, and trains no network.
        threshold_aim: Metric that the decision threshold maximises on validation (`faithkit.calibration`).
    """

    weights: Text
    max_length: Tokens = 256
    order: Annotated[str, OneOf(ORDERS)] = "knowledge_response"
    max_knowledge_words: Count | None = None
    max_windows: Count | None = None
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

    @property
    def reads_tokens(self) -> bool:
        """Whether the weakest tokens are among the evidence."""
        return self.evidence == WORDS_AND_TOKENS
