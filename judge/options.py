"""A judge's hyperparameters: what it takes of the block `model`."""

from dataclasses import dataclass
from typing import Annotated

from faithkit.settings.check import check_fields
from faithkit.settings.types import OneOf, PartialShare, Switch, Text, Tokens
from faithkit.training.options import Aim
from judge.target import LEARNT


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """Options of `model=judge`.

    Args:
        weights: A causal model: a folder, hub name or local name.
        ask: What it learns to reply: verdict, judgement or spans.
        prompts: A folder with a prompt of one's own, `<ask>.txt`; None takes ours.
        max_length: Tokens of prompt and reply; the oldest turns are left out where they do not fit.
        packed: Sequences one behind the other without padding.
        dropout: Overrides the model's own; None keeps it.
        gradient_checkpointing: Trades time for memory.
        threshold_aim: What the threshold of P(hallucinated) is chosen for, on validation.
    """

    weights: Text
    max_length: Tokens
    ask: Annotated[str, OneOf(LEARNT)] = "judgement"
    prompts: Text | None = None
    packed: Switch = True
    dropout: PartialShare | None = None
    gradient_checkpointing: Switch = False
    threshold_aim: Aim = "macro_f1"

    def __post_init__(self) -> None:
        check_fields(self, "model")
