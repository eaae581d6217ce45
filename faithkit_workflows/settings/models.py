"""The block `model` of each task, and what generators have besides: objective and control tokens."""

from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, Tag, model_validator

from critic.sequence.options import CriticOptions
from critic.tagger.options import TaggerOptions
from data_modules.encoding.turn_layout import CONTROL_TOKENS, check_control_groups
from faithkit.errors import UserError
from faithkit.settings.types import (
    Block,
    Count,
    Hint,
    NonNegative,
    NonNegativeInt,
    OneOf,
    OpenBlock,
    Positive,
    Text,
)
from faithkit_workflows.settings.blocks import with_options
from faithkit_workflows.settings.data import BATCH_SIZE
from generation.options import GeneratorOptions
from judge.options import JudgeOptions

TARGET = "_target_"
# As in generation.candidate_forward, without torch.
QUERIES = ("encoder_mean", "encoder_first", "decoder_first", "context_last")
OpenShare = Annotated[float, Field(gt=0, lt=1), Hint("use a share above 0 and below 1")]
GROUPS = tuple(CONTROL_TOKENS)
IN_ORDER = f"use some of {', '.join(GROUPS)}, in this order"
# What each kind of model logs on validation; the names that are best where they are lowest.
METRICS = {
    "critic": (
        *("macro_f1", "f1", "precision", "recall", "accuracy", "balanced_accuracy", "auroc", "average_precision"),
        *("faithful_f1", "mean_precision", "mean_recall", "unparsed_rate", "ece", "brier", "loss"),
    ),
    "tagger": ("char_f1", "response_f1", "token_auroc", "response_auroc", "loss"),
    "generator": ("perplexity", "loss", "token_accuracy"),
}
METRICS["judge"] = (*(name for name in METRICS["critic"] if name != "loss"), "verdict_loss", *METRICS["generator"])
LOWER_IS_BETTER = ("loss", "verdict_loss", "perplexity", "ece", "brier", "unparsed_rate")


class Task(OpenBlock):
    """`model.task`: which class learns, and the blocks beside `model` that it takes."""

    target: Annotated[Text, Hint("use the name of a class: package.module.Class")] = Field(alias="_target_")
    optimizer: Annotated[dict[str, Any] | None, Hint("set the keys of the block optimizer itself")] = None
    objective: Annotated[dict[str, Any] | None, Hint("set the keys of the block objective itself")] = None
    control: Annotated[dict[str, Any] | None, Hint("set the keys of the block control itself")] = None


class Model(Block):
    """The keys that every `model=` has beside its task's options."""

    name: Text
    task: Task
    num_epochs: Annotated[int, Field(ge=1, le=100_000), Hint("use a whole number of 1 or more")]
    batch_size: Annotated[Count | None, BATCH_SIZE]
    validations_per_epoch: Positive
    accumulate_grad_batches: Count
    gradient_clip_val: Annotated[NonNegative | None, Hint("use a number above 0, or null for no clipping")]

    @model_validator(mode="before")
    @classmethod
    def _with_the_tasks_own(cls, values: Any) -> Any:
        """Takes options from the task's own block too, where configurations of older runs have them."""
        task = values.get("task") if isinstance(values, dict) else None
        if not isinstance(task, dict):
            return values
        own = {name: value for name, value in task.items() if name in cls.model_fields and name not in values}
        return {**values, **own}


class OutsideModel(OpenBlock):
    """A task of another package: its options are its own."""

    name: Text
    task: Task


Critic = with_options(Model, CriticOptions, "Critic")
Tagger = with_options(Model, TaggerOptions, "Tagger")
Generator = with_options(Model, GeneratorOptions, "Generator")
Judge = with_options(Model, JudgeOptions, "Judge")
KINDS = {"critic.sequence.task.CriticTask": "critic", "critic.tagger.task.TaggerTask": "tagger"}
KINDS |= {"generation.task.GeneratorTask": "generator", "judge.task.JudgeTask": "judge"}


def kind_of(model: Any) -> str:
    """The kind of a `model` block: critic, tagger, generator, judge, or outside."""
    task = model.get("task") if isinstance(model, dict) else None
    return KINDS.get(str(task.get(TARGET)) if isinstance(task, dict) else "", "outside")


AnyModel = Annotated[
    Annotated[Critic, Tag("<critic>")]  # type: ignore[valid-type]
    | Annotated[Tagger, Tag("<tagger>")]  # type: ignore[valid-type]
    | Annotated[Generator, Tag("<generator>")]  # type: ignore[valid-type]
    | Annotated[Judge, Tag("<judge>")]  # type: ignore[valid-type]
    | Annotated[OutsideModel, Tag("<outside>")],
    Discriminator(lambda value: f"<{kind_of(value)}>"),
]


class LossTruncation(Block):
    """`objective=loss_truncation`."""

    target: Text = Field(alias="_target_")
    drop_fraction: OpenShare
    window: Count
    hot_start: Count
    recompute_every: Count


class InfoNce(Block):
    """`objective=infonce`."""

    target: Text = Field(alias="_target_")
    weight: Positive
    temperature: Positive
    query: Annotated[Any, OneOf((*QUERIES, None))]
    num_negatives: NonNegativeInt
    in_batch: Annotated[Any, OneOf((False, True, "all"))] = False

    @model_validator(mode="after")
    def _has_negatives(self) -> Self:
        if not self.in_batch and self.num_negatives < 1:
            hint = "use 1 or more; with objective.in_batch=true 0 is possible"
            raise UserError(f"objective.num_negatives is {self.num_negatives}", hint=hint)
        return self


class OtherObjective(OpenBlock):
    """`objective=mle`, or one of another package."""

    target: Text = Field(alias="_target_")


OBJECTIVES = {
    "generation.objectives.loss_truncation.LossTruncation": "<loss_truncation>",
    "generation.objectives.infonce.InfoNce": "<infonce>",
}
Objective = Annotated[
    Annotated[LossTruncation, Tag("<loss_truncation>")]
    | Annotated[InfoNce, Tag("<infonce>")]
    | Annotated[OtherObjective, Tag("<other>")],
    Discriminator(lambda v: OBJECTIVES.get(str(v.get(TARGET)) if isinstance(v, dict) else "", "<other>")),
]


class ControlBlock(OpenBlock):
    """`control=ctrl`."""

    target: Text = Field(alias="_target_")
    groups: Annotated[list[Annotated[str, OneOf(GROUPS)]], Field(min_length=1), Hint(IN_ORDER)]
    entailment: Text | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        check_control_groups(self.groups)
        return self
