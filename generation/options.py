"""The options of a generator (the block `model`) and of its objective, apart from their code, which needs torch."""

from typing import Annotated, Any, ClassVar

from data_modules.encoding.sequence_layout import CAUSAL, SEQ2SEQ, TOO_SHORT, ResponseLength, SequenceLength
from faithkit.settings.check import options
from faithkit.settings.types import (
    Conflict,
    Count,
    NonNegativeInt,
    OneOf,
    OpenShare,
    PartialShare,
    Positive,
    Switch,
    Text,
)

ARCHITECTURE_NAMES = ("seq2seq", "causal", "doha")  # the keys of generation.weights.ARCHITECTURES, without torch
SEQ2SEQ_QUERIES = ("encoder_mean", "first_token", "decoder_first")  # the first is the default
CAUSAL_QUERIES = ("context_last",)
NONE, LINEAR, MLP = PROJECTIONS = ("none", "linear", "mlp")
ALL = "all"  # negatives of the other rows of a batch


@options("model")
class GeneratorOptions:
    """Options of every `model=` that writes.

    Args:
        architecture: A key of `generation.weights.ARCHITECTURES`.
        weights: A folder (of a generator of ours too), hub name or local name.
        max_length: Tokens that the model reads: see `data_modules.encoding.sequence_layout`.
        max_response_length: Tokens of a response.
        max_history: Turns at most; None for all that fit.
        packed: Causal models: sequences without padding.
        dropout: Dropout of the model; None keeps its default.
        attention_dropout: The same for attention alone.
        gradient_checkpointing: Trades time for memory.
    """

    architecture: Annotated[str, OneOf(ARCHITECTURE_NAMES)]
    weights: Text
    max_length: SequenceLength
    max_response_length: ResponseLength
    max_history: NonNegativeInt | None = None
    packed: Switch = False
    dropout: PartialShare | None = None
    attention_dropout: PartialShare | None = None
    gradient_checkpointing: Switch = False

    conflicts: ClassVar[tuple[Conflict, ...]] = (TOO_SHORT,)

    @property
    def kind(self) -> str:
        """The kind of its sequences."""
        return CAUSAL if self.architecture == "causal" else SEQ2SEQ


@options("objective")
class LossTruncationOptions:
    """Options of `objective=loss_truncation`.

    Args:
        drop_fraction: Share of the responses to leave out: c of the paper.
        window: Newest losses that the cutoff is a quantile of.
        hot_start: Responses before any is left out: an untrained model cannot rank them.
        recompute_every: Responses between two cutoffs.
        dropped_as_zero: Divides by the tokens of the dropped responses too, as FaithDial's release does.
    """

    drop_fraction: OpenShare
    window: Count
    hot_start: Count
    recompute_every: Count
    dropped_as_zero: Switch = False


@options("objective")
class InfoNceOptions:
    """Options of `objective=infonce`.

    Args:
        weight: Of the contrastive loss, where the likelihood has 1.
        temperature: Divides the scores; below 1 sharpens the choice.
        query: The context's summary, which is compared with the candidates: encoder_mean, first_token or
            decoder_first; for causal models context_last. None is the first of these that the model has.
        num_negatives: Of a response, at most.
        projection: Of the query before it is compared: linear and mlp are trained, none compares it as it is, as
            FaithDial's release does.
        in_batch: True makes the gold responses of the batch's other rows negatives too; `all` their negatives besides,
            as FaithDial's release does.
    """

    weight: Positive
    temperature: Positive
    query: Annotated[Any, OneOf((*SEQ2SEQ_QUERIES, *CAUSAL_QUERIES, None))]
    num_negatives: NonNegativeInt
    projection: Annotated[str, OneOf(PROJECTIONS)] = LINEAR
    in_batch: Annotated[Any, OneOf((False, True, ALL))] = False

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            lambda s: not s.in_batch and s.num_negatives < 1,
            "objective.num_negatives is {s.num_negatives}",
            "use 1 or more; with objective.in_batch=true 0 is possible",
        ),
    )
