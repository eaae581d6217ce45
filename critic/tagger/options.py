"""The tagger's hyperparameters, the block `model`."""

from typing import ClassVar

from faithkit.settings.check import options
from faithkit.settings.types import Conflict, Count, NonNegative, PartialShare, Positive, Switch, Text, Tokens
from faithkit.training.training_options import Aim


@options("model")
class TaggerOptions:
    """Options of `model=tagger`. `SpanEncoder` checks the minimum of max_length.

    Args:
        weights: A folder, hub name or local name of an encoder, or of a critic or tagger to fine-tune further.
        max_length: Tokens of a window.
        max_windows: Windows that predictions read of a longer context, those that share most with the response, also
            when thresholds are fitted; None reads all.
        train_windows: The same for training and the validation during it.
        typed: Predicts a class for each type of hallucination instead of a single class. Has no effect if no training
            span has a type.
        packed: Packs windows without padding.
        positive_weight: Weight of hallucinated tokens in the loss; other tokens have weight 1.
        focal_gamma: Above 0, confidently correct tokens have less weight (`critic.tagger.module`).
        support_weight: Weight of overlap supervision (`critic.auxiliary_losses`); 0 leaves it out.
        freeze_embeddings: Does not train the word embeddings.
        dropout: Dropout of the encoder; None keeps its default.
        attention_dropout: The same for attention alone.
        gradient_checkpointing: Trades time for memory.
        token_support: Computes the log-odds of a token from its support in the knowledge (`critic.token_support`), with
            an encoder that is not fine-tuned, instead of a head. Trains no network, and labels responses by their
            tokens.
        evidence: Also calibrates tokens by their sentence and missing words (`critic.tagger.calibration_features`).
        threshold_aim: Metric that the response threshold maximises on validation.
    """

    weights: Text
    max_length: Tokens = 512
    max_windows: Count | None = None
    train_windows: Count | None = None
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
