"""The judge's hyperparameters, the block `model`."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from faithkit.settings.check import check_fields
from faithkit.settings.types import Hint, OneOf, PartialShare, Switch, Text, Tokens
from faithkit.training.training_options import Aim
from faithkit.weights.adapters import ALL_LINEAR, MAX_ALPHA, MAX_RANK
from judge.asking import TRAINABLE

Rank = Annotated[int, Field(ge=1, le=MAX_RANK)]
Modules = Annotated[
    Annotated[str, OneOf((ALL_LINEAR,))] | Annotated[list[Text], Field(min_length=1)],
    Hint("use all-linear, or a list of layers' names: [q_proj,v_proj]"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """Options of `model=judge`.

    Args:
        weights: A causal model: a folder, hub name or local name.
        ask: The reply that it is trained for: verdict, judgement or spans.
        prompts: A folder with another prompt, `<ask>.txt`; None takes the built-in prompt.
        max_length: Tokens of prompt and reply; the oldest turns are removed if they do not fit.
        packed: Packs sequences without padding.
        share_beginnings: Batches rows with the same knowledge and history together, and encodes this prefix once.
        dropout: Dropout of the model; None keeps its default.
        gradient_checkpointing: Trades time for memory.
        threshold_aim: Metric that the threshold of P(hallucinated) maximises on validation.
        lora_rank: Trains only LoRA adapters of this rank; None trains all weights.
        lora_alpha: Scales the adapters' output, divided by the rank.
        lora_dropout: Dropout of the adapters' input.
        lora_modules: Layers with an adapter: all-linear, or suffixes of their names.
    """

    weights: Text
    max_length: Tokens
    ask: Annotated[str, OneOf(TRAINABLE)] = "judgement"
    prompts: Text | None = None
    packed: Switch = True
    share_beginnings: Switch = True
    dropout: PartialShare | None = None
    gradient_checkpointing: Switch = False
    threshold_aim: Aim = "macro_f1"
    lora_rank: Annotated[
        Rank | None, Hint(f"use a whole number from 1 to {MAX_RANK}, or null to train all weights")
    ] = None
    lora_alpha: Annotated[int, Field(ge=1, le=MAX_ALPHA), Hint(f"use a whole number from 1 to {MAX_ALPHA}")] = 32
    lora_dropout: PartialShare = 0.0
    lora_modules: Modules = ALL_LINEAR

    def __post_init__(self) -> None:
        check_fields(self, "model")
