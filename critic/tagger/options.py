"""The tagger's hyperparameters, from the block `model`."""

from dataclasses import dataclass
from typing import ClassVar

from faithkit.settings.check import check_fields
from faithkit.settings.types import Conflict, Count, NonNegative, PartialShare, Positive, Switch, Text, Tokens
from faithkit.training.options import Aim


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggerOptions:
    """Options of `model=tagger`; the encoder, which knows the tokenizer, checks the least max_length.

    Args:
        weights: A folder, hub name or local name: an encoder, or a critic or tagger to go on from.
        max_length: Tokens of a window.
        max_windows: Windows of a longer context that training and validation read; the test reads all.
        typed: A class for each type of hallucination, instead of one for all; one for all too where no span of training
            tells a type.
        packed: Windows one behind the other without padding.
        positive_weight: Weight of hallucinated tokens in the loss, beside 1 of the others.
        focal_gamma: Above 0, tokens that the model is sure and right of count less (`critic.losses.tag_loss`).
        support_weight: Weight of the auxiliary loss of `critic.losses.overlap_supervision`; 0 leaves it out.
        freeze_embeddings: Word embeddings stay as they are.
        dropout: Overrides the encoder's own; None keeps it.
        attention_dropout: The same for attention alone.
        gradient_checkpointing: Trades time for memory.
        token_support: Takes a token's log-odds from how little the knowledge supports it (`critic.token_support`), by
            the encoder as it came, in place of a head's; nothing of the network learns then, and a response is called
            by its tokens.
        evidence: Calibrates tokens by their sentence and missing words too (`critic.tagger.evidence`).
        threshold_aim: What the response threshold is chosen for on validation.
    """

    weights: Text
    max_length: Tokens = 512
    max_windows: Count | None = None
    typed: Switch = False
    packed: Switch = False
    positive_weight: Positive = 1.0
    focal_gamma: NonNegative = 0.0
    support_weight: NonNegative = 0.0
    freeze_embeddings: Switch = False
    dropout: PartialShare | None = None
    attention_dropout: PartialShare | None = None
    gradient_checkpointing: Switch = False
    token_support: Switch = False
    evidence: Switch = True
    threshold_aim: Aim = "f1"

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            lambda s: s.token_support and (s.typed or s.support_weight),
            "model.token_support=true trains no network: it predicts no types, and has no loss",
            "set model.typed=false model.support_weight=0",
        ),
    )

    def __post_init__(self) -> None:
        check_fields(self, "model")
