"""The keys of train.py, with the blocks `model`, `objective`, `control` and `sweep`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from data_modules.encoding.sequence_layout import CONTROL_TOKENS, check_control_groups
from faithkit.errors import UserError, choice_hint
from faithkit.packages import missing
from faithkit.scores.measures import CLASSIFICATION, LANGUAGE_MODEL, kinds_of
from faithkit.settings import types
from faithkit.settings.check import with_options
from faithkit.settings.config_files import CONTROL_SOURCES, EMBEDDED, MEASURED, data_path, display_name
from faithkit.settings.types import Ineffective
from faithkit.statistics.metric import ACCURACY, COST, MetricKind
from faithkit.targets import TARGETS
from faithkit.training.training_options import OptimizerOptions
from faithkit_workflows.settings import blocks, preflight

TARGET = "_target_"
# The validation metrics that a best checkpoint can be chosen by.
_CLASSIFICATION = {name: kind for name, kind in CLASSIFICATION.items() if kind.higher_is_better is not None}


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
    num_epochs: Annotated[int, types.Range(ge=1, le=100_000)]
    batch_size: blocks.BatchSize
    validations_per_epoch: types.Positive
    accumulate_grad_batches: types.Count
    gradient_clip_val: Annotated[types.NonNegative | None, types.OrNull("for no clipping")]


class OutsideModel(types.OpenBlock):
    """A task of another package, which checks its options."""

    name: types.Text
    task: Task


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of model: its options as `module:Class`, and its validation metrics."""

    name: str
    options: str
    metrics: Mapping[str, MetricKind]


MODEL_KINDS = {
    "critic.sequence.task.CriticTask": Kind(
        "critic", "critic.options:CriticOptions", {**_CLASSIFICATION, "loss": COST}
    ),
    "critic.tagger.task.TaggerTask": Kind(
        "tagger",
        "critic.options:TaggerOptions",
        {**dict.fromkeys(("char_f1", "response_f1", "token_auroc", "response_auroc"), ACCURACY), "loss": COST},
    ),
    "generation.task.GeneratorTask": Kind("generator", "generation.options:GeneratorOptions", kinds_of(LANGUAGE_MODEL)),
    "judge.task.JudgeTask": Kind(
        "judge", "judge.options:JudgeOptions", {**_CLASSIFICATION, "verdict_loss": COST, **kinds_of(LANGUAGE_MODEL)}
    ),
}


def _target_of(block: Any) -> str:
    return str(block.get(TARGET)) if isinstance(block, dict) else ""


def kind_of(model: Any) -> Kind | None:
    """Gives the kind of a block `model`; None for a task of another package."""
    return MODEL_KINDS.get(_target_of(model.get("task") if isinstance(model, dict) else None))


class Target(types.Block):
    """A block that names a class."""

    target: types.Text = Field(alias="_target_")


class OutsideObjective(types.OpenBlock):
    """An objective of another package, which checks its options."""

    target: types.Text = Field(alias="_target_")


def _choose_model(block: Any) -> type[types.Block]:
    kind = kind_of(block)
    return with_options(Model, resolve_name(kind.options)) if kind else OutsideModel


def _choose_objective(block: Any) -> type[types.Block]:
    name = _target_of(block)
    if name not in TARGETS or not name.startswith("generation.objectives."):
        return OutsideObjective
    return with_options(Target, resolve_name(name).options_class())


class ControlBlock(types.OpenBlock):
    """`control=ctrl`."""

    target: types.Text = Field(alias="_target_")
    groups: Annotated[list[str], types.SomeOf(tuple(CONTROL_TOKENS)), AfterValidator(check_control_groups)]
    entailment: blocks.Weights = None
    source: Annotated[str, types.OneOf(CONTROL_SOURCES)] = MEASURED
    entailment_levels: Annotated[int, types.Range(ge=2, le=3)] = 3


class Sweep(types.Block):
    """`sweep`: how the jobs of `-m` are run."""

    num_parallel: Annotated[int, types.Range(ge=1, le=10_000)]


def _is_embedded(settings: Any) -> bool:
    parts = settings.data.parts.values() if isinstance(settings.data.parts, dict) else settings.data.parts
    return any(part.path == EMBEDDED or (part.model_extra or {}).get("audit_path") == EMBEDDED for part in parts)


def _without_repetition(values: list[Any]) -> list[Any]:
    if len(set(values)) < len(values):
        raise ValueError("a value is repeated")
    return values


class TrainSettings(blocks.ExtensibleScript):
    """train.py."""

    data_dir: types.PathText | None = None  # of experiments, which find their corpora in it
    model: Annotated[Any, types.Variants(_choose_model)]
    data: Annotated[blocks.Data, types.Preflight(lambda key, data: preflight.check_parts(data))]
    trainer: blocks.Trainer
    callbacks: blocks.Callbacks
    logger: blocks.Loggers
    objective: Annotated[Any, types.Variants(_choose_objective)] | None = None
    control: ControlBlock | None = None
    scale: dict[str, Any]
    seeds: Annotated[
        Annotated[list[types.Seed], Field(min_length=2), AfterValidator(_without_repetition)] | None,
        types.Hint("use a list of two different numbers or more, seeds=[1,2,3], or null for seed alone"),
    ] = None
    checkpoints: Annotated[str, types.OneOf(types.KEPT_CHECKPOINTS)] = "all"
    verbose: types.Switch = False
    optimizer: OptimizerOptions
    # Of the command line: runs do not keep it.
    sweep: Annotated[
        Any,
        types.Variants(
            lambda block: Sweep if isinstance(block, dict) else None,
            "set sweep.num_parallel=2; a sweep is a grid, such as optimizer.lr=1e-4,2e-4; docs/guides/sweeps.md has a "
            "search",
        ),
    ] = None

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
            ("data.embedded_rows",), "on files: data.path=embedded reads so many rows", lambda s: not _is_embedded(s)
        ),
        Ineffective(
            ("data.embedded_rows",),
            "on data=embedded: set data.num_train, data.num_validation and data.num_test",
            lambda s: s.data.name == "embedded",
        ),
        types.no_effect("data.num_readers", "data.num_buffer_rows", without="data.streaming=true"),
        types.no_effect("data.num_folds", without="data.fold"),
        types.no_effect("optimizer.floor", where="optimizer.schedule=constant"),
    )

    @model_validator(mode="after")
    def _monitors_a_logged_metric(self) -> Self:
        monitor, mode = self.callbacks.monitor, self.callbacks.mode
        kind = kind_of(self.model.model_dump(by_alias=True))
        if kind is None:
            return self
        shown = display_name(self.data.name, data_path(self.data.model_dump(by_alias=True)))
        short = monitor.rpartition("/")[2]
        logged = [f"validation/{data}/{name}" for data in (self.data.name, shown) for name in kind.metrics]
        if monitor not in [*logged, "train/loss"]:
            hint = f"validation/{shown}/NAME: {choice_hint(short, tuple(kind.metrics))}"
            raise UserError(f"callbacks.monitor is {monitor!r}", hint=hint)
        best = "max" if kind.metrics.get(short, COST).higher_is_better else "min"
        if mode != best:
            problem = f"callbacks.mode is {mode!r}, which would keep the worst {monitor}"
            raise UserError(problem, hint=f"set callbacks.mode={best}")
        return self

    def preflight(self, script: Any) -> Iterator[UserError]:
        model: Any = self.model
        yield from preflight.check_weights("model.weights", getattr(model, "weights", None))
        yield from preflight.check_prompts("model", getattr(model, "ask", None), getattr(model, "prompts", None))
        if getattr(model, "lora_rank", None) is not None:
            yield from missing("model.lora_rank")
