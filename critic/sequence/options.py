"""The critic's hyperparameters, from the block `model`."""

from dataclasses import dataclass
from typing import Annotated

from data_modules.encoding.pair_layout import ORDERS
from faithkit.errors import UserError
from faithkit.settings.check import check_fields
from faithkit.settings.types import Count, NonNegative, OneOf, PartialShare, Switch, Text, Tokens
from faithkit.training.options import Aim

WORDS, WORDS_AND_TOKENS = "words", "words_and_tokens"  # true is words, as it was before there were more


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticOptions:
    """Options of `model=critic`; the encoder, which knows the tokenizer, checks the least max_length.

    Args:
        weights: A folder, hub name or local name of an encoder, or of a classifier to go on from.
        max_length: Tokens of a sequence.
        order: Which text stands first: knowledge_response or response_knowledge.
        max_knowledge_words: Of longer knowledge the sentences most like the response are read; None reads all.
        label_smoothing: Share of the probability that the target gives to both classes alike.
        support_weight: Weight of the auxiliary loss of `critic.losses.overlap_supervision`; 0 leaves it out.
        span_weight: Weight of the auxiliary loss of `critic.losses.span_supervision`; 0 leaves it out.
        freeze_embeddings: Word embeddings stay as they are.
        freeze_encoder: All but the head stays as it is: of an encoder that compares texts already, it loses nothing.
        dropout: Overrides the encoder's own; None keeps it.
        gradient_checkpointing: Trades time for memory.
        evidence: What is weighed beside the encoder's log-odds (`critic.sequence.evidence`): words,
        words_and_tokens, or false
            for nothing.
        evidence_alone: Weighs the evidence without the log-odds; nothing of the network learns then.
        threshold_aim: What the decision threshold is chosen for on validation (`faithkit.calibration.thresholds`).
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

    def __post_init__(self) -> None:
        check_fields(self, "model")
        if self.reads_tokens and not self.freeze_encoder:
            problem = f"model.evidence={WORDS_AND_TOKENS} compares tokens by an encoder that must stay as it came"
            raise UserError(problem, hint="set model.freeze_encoder=true")
        if self.evidence_alone and not (self.evidence and self.freeze_encoder):
            problem = "model.evidence_alone=true trains no network, and weighs model.evidence alone"
            raise UserError(problem, hint=f"set model.evidence={WORDS_AND_TOKENS} model.freeze_encoder=true")
        for name in ("support_weight", "span_weight"):
            if self.evidence_alone and getattr(self, name):
                raise UserError(f"model.{name} is a loss, and nothing learns", hint=f"set model.{name}=0")

    @property
    def reads_tokens(self) -> bool:
        """Tells whether the weakest tokens are among the evidence."""
        return self.evidence == WORDS_AND_TOKENS
