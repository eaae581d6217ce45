"""A judge's hyperparameters: what it takes of the block `model`."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from faithkit.settings.check import check_fields
from faithkit.settings.types import Hint, OneOf, PartialShare, Switch, Text, Tokens
from faithkit.training.options import Aim
from faithkit.weights.adapter_folder import ALL_LINEAR, MAX_ALPHA, MAX_RANK
from judge.target import LEARNT

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
        ask: What it learns to reply: verdict, judgement or spans.
        prompts: A folder with a prompt of one's own, `<ask>.txt`; None takes ours.
        max_length: Tokens of prompt and reply; the oldest turns are left out where they do not fit.
        packed: Sequences one behind the other without padding.
        share_beginnings: Rows about the same knowledge and history share a batch, which reads these once.
        dropout: Overrides the model's own; None keeps it.
        gradient_checkpointing: Trades time for memory.
        threshold_aim: What the threshold of P(hallucinated) is chosen for, on validation.
        lora_rank: Trains LoRA adapters of this rank, and nothing else; None trains all weights.
        lora_alpha: The adapters' output is scaled by this over the rank.
        lora_dropout: Of the adapters' input.
        lora_modules: The layers that get one: all-linear, or the ends of their names.
    """

    weights: Text
    max_length: Tokens
    ask: Annotated[str, OneOf(LEARNT)] = "judgement"
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
