"""The hyperparameters of critics and taggers, the block `model`."""

from typing import Annotated, ClassVar

from data_modules.encoding.sequence_layout import ORDERS
from faithkit.settings.check import options
from faithkit.settings.types import Conflict, Count, NonNegative, OneOf, PartialShare, Positive, Switch, Text, Tokens
from faithkit.training.training_options import Aim

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
        evidence: Features that are combined with the encoder's log-odds (`critic.sequence.task`): words,
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
        evidence: Also calibrates tokens by their sentence and missing words (`critic.tagger.span_calibration`).
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
