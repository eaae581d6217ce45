"""The keys of train.py, with the blocks `model`, `objective`, `control` and `sweep`."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, Tag, model_validator

from critic.sequence.options import CriticOptions
from critic.tagger.options import TaggerOptions
from data_modules.encoding.sequence_layout import CONTROL_TOKENS, check_control_groups
from faithkit.embedded_name import EMBEDDED, data_path, display_name
from faithkit.errors import UserError, choice_hint
from faithkit.settings import types
from faithkit.settings.check import with_options
from faithkit.settings.types import Ineffective
from faithkit.statistics.metric import ACCURACY, CALIBRATION_ERROR, COST, ERROR_RATE, SIMILARITY, MetricKind
from faithkit_workflows.settings import blocks, preflight
from generation.objectives.options import InfoNceOptions, LossTruncationOptions
from generation.options import GeneratorOptions
from judge.options import JudgeOptions

TARGET = "_target_"
GROUPS = tuple(CONTROL_TOKENS)
# The validation metrics of each kind of model. Their kinds are those of faithkit/metrics, which would load numpy.
_CLASSIFICATION: Mapping[str, MetricKind] = {
    **dict.fromkeys(("macro_f1", "f1", "precision", "recall", "accuracy", "balanced_accuracy"), ACCURACY),
    **dict.fromkeys(("auroc", "average_precision", "faithful_f1", "mean_precision", "mean_recall"), ACCURACY),
    **{"unparsed_rate": ERROR_RATE, "ece": CALIBRATION_ERROR, "brier": ERROR_RATE},
}
_LANGUAGE_MODEL: Mapping[str, MetricKind] = {"perplexity": COST, "loss": COST, "token_accuracy": SIMILARITY}
METRICS: Mapping[str, Mapping[str, MetricKind]] = {
    "critic": {**_CLASSIFICATION, "loss": COST},
    "tagger": {**dict.fromkeys(("char_f1", "response_f1", "token_auroc", "response_auroc"), ACCURACY), "loss": COST},
    "generator": _LANGUAGE_MODEL,
    "judge": {**_CLASSIFICATION, "verdict_loss": COST, **_LANGUAGE_MODEL},
}


class Task(types.OpenBlock):
    """`model.task`: the class that learns, and the blocks besides `model` that it takes."""

    target: Annotated[
        types.Text, types.Hint("use the name of a class: package.module.Class"), types.Preflight(preflight.check_class)
    ] = Field(alias="_target_")
    optimizer: Annotated[dict[str, Any] | None, types.Hint("set the keys of the block optimizer itself")] = None
    objective: Annotated[dict[str, Any] | None, types.Hint("set the keys of the block objective itself")] = None
    control: Annotated[dict[str, Any] | None, types.Hint("set the keys of the block control itself")] = None


class Model(types.Block):
    """The keys that every `model=` has besides the options of its task."""

    name: types.Text
    task: Task
    num_epochs: Annotated[int, Field(ge=1, le=100_000), types.Hint("use a whole number of 1 or more")]
    batch_size: blocks.BatchSize
    validations_per_epoch: types.Positive
    accumulate_grad_batches: types.Count
    gradient_clip_val: Annotated[types.NonNegative | None, types.Hint("use a number above 0, or null for no clipping")]


class OutsideModel(types.OpenBlock):
    """A task of another package, which checks its options."""

    name: types.Text
    task: Task


Critic = with_options(Model, CriticOptions, "Critic")
Tagger = with_options(Model, TaggerOptions, "Tagger")
Generator = with_options(Model, GeneratorOptions, "Generator")
Judge = with_options(Model, JudgeOptions, "Judge")
KINDS = {"critic.sequence.task.CriticTask": "critic", "critic.tagger.task.TaggerTask": "tagger"}
KINDS |= {"generation.task.GeneratorTask": "generator", "judge.task.JudgeTask": "judge"}


def _target_of(block: Any) -> str:
    return str(block.get(TARGET)) if isinstance(block, dict) else ""


def kind_of(model: Any) -> str:
    """Gives the kind of a block `model`: critic, tagger, generator, judge, or outside."""
    return KINDS.get(_target_of(model.get("task") if isinstance(model, dict) else None), "outside")


AnyModel = Annotated[
    Annotated[Critic, Tag("<critic>")]  # type: ignore[valid-type]
    | Annotated[Tagger, Tag("<tagger>")]  # type: ignore[valid-type]
    | Annotated[Generator, Tag("<generator>")]  # type: ignore[valid-type]
    | Annotated[Judge, Tag("<judge>")]  # type: ignore[valid-type]
    | Annotated[OutsideModel, Tag("<outside>")],
    Discriminator(lambda value: f"<{kind_of(value)}>"),
]


class Target(types.Block):
    """A block that names a class."""

    target: types.Text = Field(alias="_target_")


class OtherObjective(types.OpenBlock):
    """`objective=mle`, or one of another package."""

    target: types.Text = Field(alias="_target_")


LossTruncation = with_options(Target, LossTruncationOptions, "LossTruncation")
InfoNce = with_options(Target, InfoNceOptions, "InfoNce")
OBJECTIVES = {
    "generation.objectives.loss_truncation.LossTruncation": "<loss_truncation>",
    "generation.objectives.infonce.InfoNce": "<infonce>",
}
Objective = Annotated[
    Annotated[LossTruncation, Tag("<loss_truncation>")]  # type: ignore[valid-type]
    | Annotated[InfoNce, Tag("<infonce>")]  # type: ignore[valid-type]
    | Annotated[OtherObjective, Tag("<other>")],
    Discriminator(lambda value: OBJECTIVES.get(_target_of(value), "<other>")),
]


class ControlBlock(types.OpenBlock):
    """`control=ctrl`."""

    target: types.Text = Field(alias="_target_")
    groups: Annotated[
        list[Annotated[str, types.OneOf(GROUPS)]],
        Field(min_length=1),
        types.Hint(f"use some of {', '.join(GROUPS)}, in this order"),
    ]
    entailment: blocks.Weights = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        check_control_groups(self.groups)
        return self


GRID, OPTUNA = "grid", "optuna"
JOBLIB, SLURM, LOCAL = "joblib", "submitit_slurm", "submitit_local"
# Of submitit: a number, a text, the lines of slurm_setup, or the block slurm_additional_parameters.
Parameter = bool | int | float | str | list[str] | dict[str, bool | int | float | str]


class Sweep(types.Block):
    """`sweep`: how the jobs of `-m` are chosen and run."""

    search: Annotated[str, types.OneOf((GRID, OPTUNA))]
    num_parallel: Annotated[int, Field(ge=1, le=10_000), types.Hint("use 1 or more jobs at a time")]
    launcher: Annotated[str, types.OneOf((JOBLIB, SLURM, LOCAL))]
    submitit: Annotated[
        dict[str, Parameter] | None,
        types.Hint("use a block of submitit's parameters: 'sweep.submitit={timeout_min: 240}'"),
    ]
    num_trials: types.Count = 20
    sampler: Annotated[str, types.OneOf(("tpe", "random"))] = "tpe"
    seed: types.Seed = 0


def _is_embedded(settings: Any) -> bool:
    parts = settings.data.parts.values() if isinstance(settings.data.parts, dict) else settings.data.parts
    return any(part.path == EMBEDDED or (part.model_extra or {}).get("audit_path") == EMBEDDED for part in parts)


class TrainSettings(blocks.ExtensibleScript):
    """train.py."""

    data_dir: types.PathText | None = None  # of experiments, which find their corpora in it
    model: AnyModel
    data: Annotated[blocks.Data, types.Preflight(lambda key, data: preflight.check_parts(data))]
    trainer: blocks.Trainer
    callbacks: blocks.Callbacks
    logger: blocks.Loggers
    objective: Objective | None = None
    control: ControlBlock | None = None
    scale: dict[str, Any]
    seeds: blocks.Seeds = None
    checkpoints: Annotated[str, types.OneOf(types.KEPT_CHECKPOINTS)] = "all"
    verbose: types.Switch = False
    optimizer: blocks.Optimizer
    sweep: Sweep | None = None  # of the command line alone: runs do not keep it

    conflicts = (
        types.Conflict(
            lambda s: s.data.batch_size is None and s.data.max_tokens is None,
            "neither data.batch_size nor data.max_tokens is set",
            "set model.batch_size=16",
        ),
    )
    ineffective = (
        Ineffective(("sweep",), "without -m: faithkit train -m ..."),
        Ineffective(
            ("data.embedded_rows",),
            "on files: data.path=embedded reads so many rows",
            lambda s: not _is_embedded(s),
        ),
        types.no_effect("data.num_readers", "data.num_buffer_rows", without="data.streaming=true"),
        types.no_effect("data.num_folds", without="data.fold"),
        types.no_effect("optimizer.floor", where="optimizer.schedule=constant"),
    )

    @model_validator(mode="after")
    def _monitors_a_logged_metric(self) -> Self:
        monitor, mode = self.callbacks.monitor, self.callbacks.mode
        kind = kind_of(self.model.model_dump(by_alias=True))
        if kind not in METRICS:
            return self
        shown = display_name(self.data.name, data_path(self.data.model_dump(by_alias=True)))
        short = monitor.rpartition("/")[2]
        logged = [f"validation/{data}/{name}" for data in (self.data.name, shown) for name in METRICS[kind]]
        if monitor not in [*logged, "train/loss"]:
            hint = f"validation/{shown}/NAME: {choice_hint(short, tuple(METRICS[kind]))}"
            raise UserError(f"callbacks.monitor is {monitor!r}", hint=hint)
        best = "max" if METRICS[kind].get(short, COST).higher_is_better else "min"
        if mode != best:
            problem = f"callbacks.mode is {mode!r}, which would keep the worst {monitor}"
            raise UserError(problem, hint=f"set callbacks.mode={best}")
        return self

    def preflight(self, script: Any) -> Iterator[UserError]:
        model: Any = self.model
        yield from preflight.check_weights("model.weights", getattr(model, "weights", None))
        yield from preflight.check_prompts("model", getattr(model, "ask", None), getattr(model, "prompts", None))
        if getattr(model, "lora_rank", None) is not None:
            yield from preflight.check_package("model.lora_rank", "peft", "lora")
