"""The critic's hyperparameters, from the block `model`."""

from dataclasses import dataclass

from faithkit.evaluation.calibration import check_aim
from faithkit.training.options import check


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticOptions:
    """Options of `model=critic`; the encoder checks max_length and order.

    Args:
        weights: A folder, hub name or local name of an encoder, or of a classifier to go on from.
        max_length: Tokens of a sequence.
        order: Which text stands first: knowledge_response or response_knowledge.
        label_smoothing: Share of the probability that the target gives to both classes alike.
        support_weight: Weight of the auxiliary loss of `critic.overlap_supervision`; 0 leaves it out.
        freeze_embeddings: Word embeddings stay as they are.
        dropout: Overrides the encoder's own; None keeps it.
        gradient_checkpointing: Trades time for memory.
        threshold_aim: What the decision threshold is chosen for on validation (`faithkit.evaluation.calibration`).
    """

    weights: str
    max_length: int = 256
    order: str = "knowledge_response"
    label_smoothing: float = 0.0
    support_weight: float = 0.0
    freeze_embeddings: bool = False
    dropout: float | None = None
    gradient_checkpointing: bool = False
    threshold_aim: str = "macro_f1"

    def __post_init__(self) -> None:
        smoothing = self.label_smoothing
        check(0 <= smoothing < 1, "model.label_smoothing", smoothing, "use a share from 0 to below 1")
        check(self.support_weight >= 0, "model.support_weight", self.support_weight, "use 0 (off) or more")
        check_aim(self.threshold_aim)
