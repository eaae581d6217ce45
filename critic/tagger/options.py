"""The tagger's hyperparameters: what it takes of the block `model`."""

from dataclasses import dataclass

from faithkit.evaluation.calibration import check_aim
from faithkit.training.options import check


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggerOptions:
    """Options of `model=tagger`; the encoder checks max_length and max_windows.

    Args:
        weights: A folder, hub name or local name: an encoder, or a critic or tagger to go on from.
        max_length: Tokens of a window.
        max_windows: Of a longer context, in training and validation; the test reads all.
        typed: A class for each type of hallucination, instead of one for all.
        packed: Windows one behind the other without padding.
        positive_weight: Weight of hallucinated tokens in the loss, beside 1 of the others.
        focal_gamma: Above 0, tokens that are surely right count less (`critic.tagger.loss`).
        support_weight: Weight of the loss of `critic.overlap_supervision` beside the tags'; 0 does without it.
        freeze_embeddings: Word embeddings stay as they are.
        dropout: Overrides the encoder's own; None keeps it.
        attention_dropout: The same for attention alone.
        gradient_checkpointing: Trades time for memory.
        evidence: Tokens are read with their sentence and with the words that the context lacks.
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
