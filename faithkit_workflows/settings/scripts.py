"""The keys of each script but evaluate.py: what `check_settings` is given."""

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from faithkit.embedded_name import source_of, told_name
from faithkit.errors import UserError, choice_hint
from faithkit.settings.types import (
    DETECTOR_PRECISIONS,
    KEPT_CHECKPOINTS,
    PRECISIONS,
    Block,
    Count,
    Hint,
    NonNegativeInt,
    OneOf,
    PathText,
    Seed,
    Share,
    Switch,
    Text,
)
from faithkit_workflows.settings import datasets, no_effect
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.blocks import (
    AsBlock,
    Callbacks,
    ClassLabels,
    DecodingBlock,
    Loggers,
    Optimizer,
    Resamples,
    Trainer,
)
from faithkit_workflows.settings.common import (
    BatchTokens,
    BestOf,
    Common,
    Extensible,
    Folder,
    Length,
    MaxWindows,
    Names,
    Run,
    Seeds,
)
from faithkit_workflows.settings.data import Data, NumRows, OnBadRow
from faithkit_workflows.settings.engines import (
    GeneratorEngine,
    engine_problems,
)
from faithkit_workflows.settings.models import LOWER_IS_BETTER, METRICS, AnyModel, ControlBlock, Objective, kind_of
from faithkit_workflows.settings.sharded import (
    RAY,
    AnswerRayOptions,
    RayOptions,
    ScoreEngine,
    answering_problems,
    ray_problems,
)
from faithkit_workflows.settings.strategies import check_strategy
from faithkit_workflows.settings.sweep import Sweep


class TrainSettings(Extensible):
    """train.py."""

    data_dir: PathText | None = None  # of experiments, which find their corpora below it
    model: AnyModel
    data: Data
    trainer: Trainer
    callbacks: Callbacks
    logger: Loggers
    objective: Objective | None = None
    control: ControlBlock | None = None
    scale: dict[str, Any]
    seeds: Seeds = None
    checkpoints: Annotated[str, OneOf(KEPT_CHECKPOINTS)] = "all"
    verbose: Switch = False
    optimizer: Optimizer
    sweep: Sweep | None = None  # of the command line alone: runs do not keep it

    @model_validator(mode="after")
    def _chooses_by_what_is_logged(self) -> Self:
        monitor, mode = self.callbacks.monitor, self.callbacks.mode
        kind = kind_of(self.model.model_dump(by_alias=True))
        if kind not in METRICS:
            return self
        told = told_name(self.data.name, source_of(self.data.model_dump(by_alias=True)))
        prefix = f"validation/{told}/"
        names = [f"validation/{data}/{name}" for data in (self.data.name, told) for name in METRICS[kind]]
        if monitor not in [*names, "train/loss"]:
            short = monitor.rpartition("/")[2]
            hint = choice_hint(short, METRICS[kind])
            raise UserError(f"callbacks.monitor is {monitor!r}", hint=f"{prefix}NAME: {hint}")
        wanted = "min" if monitor.rpartition("/")[2] in LOWER_IS_BETTER else "max"
        if mode != wanted:
            problem = f"callbacks.mode is {mode!r}, which would keep the worst {monitor}"
            raise UserError(problem, hint=f"set callbacks.mode={wanted}")
        return self

    @model_validator(mode="after")
    def _batches_have_a_size(self) -> Self:
        if self.data.batch_size is None and self.data.max_tokens is None:
            raise UserError("neither data.batch_size nor data.max_tokens is set", hint="set model.batch_size=16")
        return self

    def surroundings(self) -> Iterator[UserError]:
        yield from around.run_dir_problems(self.run_dir)
        yield from around.hardware_problems(self.trainer.accelerator)
        yield from around.logger_problems(self.logger)
        yield from around.weights_problems("model.weights", getattr(self.model, "weights", None))
        yield from around.class_problems("model.task._target_", self.model.task.target)
        own = (getattr(self.model, name, None) for name in ("ask", "prompts"))
        yield from around.prompt_problems("model", *own)
        if getattr(self.model, "lora_rank", None) is not None:
            yield from around.package_problems("model.lora_rank", "peft", "lora")
        if self.control is not None:
            yield from around.weights_problems("control.entailment", self.control.entailment)
        yield from datasets.part_problems(self.data)

    def notes(self, given: Set[str]) -> Iterator[str]:
        yield from no_effect.without_effect(given, ["sweep"], "without -m: faithkit train -m ...")
        yield from no_effect.of_data(given, self.data)
        if self.optimizer.schedule == "constant":
            yield from no_effect.without_effect(given, ["optimizer.floor"], "with optimizer.schedule=constant")


OF_A_RUN = ("data.split", "data.num_rows", "data.on_bad_row", "data.labels", "save_texts", "num_examples", "verbose")


class GenerateSettings(Extensible):
    """generate.py."""

    scale: dict[str, Any]
    best_of: BestOf
    data: Data
    decoding: DecodingBlock
    checkpoint: PathText
    engine: GeneratorEngine
    precision: Annotated[str, OneOf(PRECISIONS)]
    batch_size: Annotated[Count | None, Hint("use 1 or more texts, or null for what suits the device")]
    max_length: Length
    num_rows: NumRows
    control_tokens: Names
    resample: Annotated[Count | None, Hint("use 1 or more answers, or null")]
    entailment: Text | None
    detector: PathText | None
    save_every_num_rows: Count
    save_texts: Switch = True
    num_examples: NonNegativeInt
    verbose: Switch = False
    out: Folder = None
    ray: Annotated[AnswerRayOptions, AsBlock(), Field(default_factory=AnswerRayOptions)]

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        check_strategy(self.decoding, self.detector, self.resample)
        return self

    def surroundings(self) -> Iterator[UserError]:
        if self.engine.name == RAY:
            yield from answering_problems(self)
        else:
            yield from around.run_dir_problems(self.run_dir)
            yield from datasets.part_problems(self.data)
        yield from around.checkpoint_problems("checkpoint", self.checkpoint, "generator")
        yield from around.checkpoint_problems("detector", self.detector, "critic", "tagger", "judge")
        yield from around.weights_problems("entailment", self.entailment)
        yield from engine_problems(self.engine.name)

    def notes(self, given: Set[str]) -> Iterator[str]:
        trains = [f"data.{key}" for key in no_effect.TRAINING_ALONE]
        yield from no_effect.without_effect(given, trains, "in generate: nothing is trained")
        if self.resample is None:
            yield from no_effect.without_effect(given, ["entailment"], "without resample")
        if self.engine.name == RAY:
            told = "with engine=ray, which puts bad rows aside and keeps no run's folder"
            yield from no_effect.without_effect(given, OF_A_RUN, told)
        else:
            yield from no_effect.without_effect(given, ["out", "ray"], "without engine=ray")


class ChatSettings(Common):
    """faithkit chat."""

    seed: Seed
    decoding: DecodingBlock
    checkpoint: PathText
    detector: PathText | None
    precision: Annotated[str, OneOf(PRECISIONS)]
    max_length: Length
    control_tokens: Names
    best_of: BestOf

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        check_strategy(self.decoding, self.detector)
        return self

    def surroundings(self) -> Iterator[UserError]:
        yield from around.checkpoint_problems("checkpoint", self.checkpoint, "generator")
        yield from around.checkpoint_problems("detector", self.detector, "critic", "tagger", "judge")


class Columns(Block):
    """`columns` of score: which column holds what."""

    knowledge: Text | None
    response: Text | None
    history: Text | None
    id: Text | None
    group: Text | None


class ScoreSettings(Run):
    """faithkit score."""

    path: PathText
    checkpoint: PathText
    columns: Columns
    encoding: Text | None = None
    by: Annotated[Text | Annotated[list[Text], Field(min_length=1)] | None, Hint("use by=COLUMN, or by=[ONE,OTHER]")]
    output: PathText | None
    num_rows: NumRows
    on_bad_row: OnBadRow
    labels: ClassLabels = None
    precision: Annotated[str, OneOf(DETECTOR_PRECISIONS)]
    batch_tokens: BatchTokens
    max_windows: MaxWindows = None
    save_every_num_rows: Count
    save_texts: Switch = True
    threshold: Share | None = None
    abstain_at: Share | None = None
    num_resamples: Resamples
    engine: ScoreEngine = Field(default_factory=ScoreEngine)
    out: Folder = None
    ray: Annotated[RayOptions, AsBlock(), Field(default_factory=RayOptions)]

    def surroundings(self) -> Iterator[UserError]:
        if self.engine.name == RAY:
            yield from ray_problems(self, self.path)
        else:
            yield from self._file_problems()
        yield from around.checkpoint_problems("checkpoint", self.checkpoint, "critic", "tagger", "judge")
        yield from around.precision_problems(self.precision)

    def notes(self, given: Set[str]) -> Iterator[str]:
        if self.engine.name == RAY:
            told = "with engine=ray, which puts bad rows aside and keeps no predictions file"
            yield from no_effect.without_effect(given, ["on_bad_row", "save_texts"], told)
        else:
            yield from no_effect.without_effect(given, ["out", "ray"], "without engine=ray")

    def _file_problems(self) -> Iterator[UserError]:
        yield from around.run_dir_problems(self.run_dir)
        if not Path(self.path).expanduser().is_dir():
            yield from around.file_problems("path", self.path)
        if self.on_bad_row == "stop":  # a first row without them may else be one of those to skip
            yield from around.column_problems(self.path, self.columns.model_dump(), self.by, self.encoding)
        yield from around.output_problems("output", self.output)
        yield from around.table_problems("output", self.output, self.path)
