"""The tagger's hyperparameters, from the block `model`."""

from dataclasses import dataclass

from faithkit.evaluation.calibration import check_aim
from faithkit.training.options import check


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggerOptions:
    """Options of `model=tagger`; the encoder checks max_length and max_windows.

    Args:
        weights: A folder, hub name or local name: an encoder, or a critic or tagger to go on from.
        max_length: Tokens of a window.
        max_windows: Windows of a longer context that training and validation read; the test reads all.
        typed: A class for each type of hallucination, instead of one for all.
        packed: Windows one behind the other without padding.
        positive_weight: Weight of hallucinated tokens in the loss, beside 1 of the others.
        focal_gamma: Above 0, tokens that the model is sure and right of count less (`critic.tagger.loss`).
        support_weight: Weight of the auxiliary loss of `critic.overlap_supervision`; 0 leaves it out.
        freeze_embeddings: Word embeddings stay as they are.
        dropout: Overrides the encoder's own; None keeps it.
        attention_dropout: The same for attention alone.
        gradient_checkpointing: Trades time for memory.
        evidence: Calibrates tokens by their sentence and missing words too (`critic.tagger.evidence`).
        threshold_aim: What the response threshold is chosen for on validation.
    """

    weights: str
    max_length: int = 512
    max_windows: int | None = None
    typed: bool = False
    packed: bool = False
    positive_weight: float = 1.0
    focal_gamma: float = 0.0
    support_weight: float = 0.0
    freeze_embeddings: bool = False
    dropout: float | None = None
    attention_dropout: float | None = None
    gradient_checkpointing: bool = False
    evidence: bool = True
    threshold_aim: str = "f1"

    def __post_init__(self) -> None:
        check(self.focal_gamma >= 0, "model.focal_gamma", self.focal_gamma, "use 0 (off) or more")
        check(self.support_weight >= 0, "model.support_weight", self.support_weight, "use 0 (off) or more")
        check(
            self.positive_weight > 0, "model.positive_weight", self.positive_weight, "use a number above 0; 1 is plain"
        )
        check_aim(self.threshold_aim)
