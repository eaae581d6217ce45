"""The keys of each script: what `check_settings` is given."""

from collections.abc import Iterator, Set
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from faithkit.errors import UserError, choice_hint
from faithkit.settings.types import (
    DETECTOR_PRECISIONS,
    PRECISIONS,
    Block,
    Count,
    Hint,
    NonNegativeInt,
    OneOf,
    PathText,
    Seed,
    Text,
)
from workflows.settings import no_effect
from workflows.settings import surroundings as around
from workflows.settings.benchmarks import AnyBenchmark, Detection, Responses, Transfer
from workflows.settings.blocks import (
    Callbacks,
    ClassLabels,
    DecodingBlock,
    Loggers,
    Optimizer,
    Resamples,
    Trainer,
)
from workflows.settings.cascade import WAYS as CASCADE_WAYS
from workflows.settings.common import BatchTokens, BestOf, Common, Extensible, Length, Names, Run, Seeds
from workflows.settings.data import Data, NumRows, OnBadRow, blocks_of
from workflows.settings.engines import (
    Ask,
    Cascade,
    Engine,
    Examiner,
    GeneratorEngine,
    Retrieval,
    SelfCheck,
    baseline_problems,
    cascade_problems,
    engine_notes,
    engine_problems,
    judge_problems,
)
from workflows.settings.models import LOWER_IS_BETTER, METRICS, AnyModel, ControlBlock, Objective, kind_of
from workflows.settings.protocols import Protocol, protocol_notes, protocol_problems
from workflows.settings.strategies import check_strategy


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
    optimizer: Optimizer  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _chooses_by_what_is_logged(self) -> Self:
        monitor, mode = self.callbacks.monitor, self.callbacks.mode
        kind = kind_of(self.model.model_dump(by_alias=True))
        if kind not in METRICS:
            return self
        prefix = f"validation/{self.data.name}/"
        names = [f"{prefix}{name}" for name in METRICS[kind]] + ["train/loss"]
        if monitor not in names:
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
        yield from around.part_problems(blocks_of(self.data), self.data.split)

    def notes(self, given: Set[str]) -> Iterator[str]:
        yield from no_effect.of_data(given, self.data)
        if self.optimizer.schedule == "constant":  # type: ignore[attr-defined]
            yield from no_effect.without_effect(given, ["optimizer.floor"], "with optimizer.schedule=constant")


class EvaluateSettings(Extensible):
    """evaluate.py."""

    scale: dict[str, Any]
    benchmark: AnyBenchmark
    decoding: DecodingBlock  # type: ignore[valid-type]
    logger: Loggers = Field(default_factory=Loggers)
    checkpoint: PathText | None
    predictions: PathText | None
    against: PathText | None
    html: PathText | None
    batch_tokens: BatchTokens
    labels: ClassLabels = None
    engine: Engine = Field(default_factory=Engine)  # type: ignore[valid-type]
    judge: Ask = Field(default_factory=Ask)  # type: ignore[valid-type]
    cascade: Cascade = Field(default_factory=Cascade)  # type: ignore[valid-type]
    selfcheck: SelfCheck = Field(default_factory=SelfCheck)  # type: ignore[valid-type]
    examiner: Examiner = Field(default_factory=Examiner)  # type: ignore[valid-type]
    retrieval: Retrieval = Field(default_factory=Retrieval)  # type: ignore[valid-type]
    precision: Annotated[str, OneOf(DETECTOR_PRECISIONS)]
    max_length: Length
    save_every_num_rows: Count = 2048
    num_resamples: Resamples
    num_examples: NonNegativeInt

    @property
    def _model(self) -> Any:
        """The block `engine`."""
        return self.engine

    @property
    def _cascade(self) -> Any:
        """The block `cascade`."""
        return self.cascade

    @property
    def _is_baseline(self) -> bool:
        """Tells whether SelfCheckGPT or an examiner judges."""
        selfcheck: Any = self.selfcheck
        examiner: Any = self.examiner
        return bool(selfcheck.measure or examiner.turns)

    @property
    def _is_cascade(self) -> bool:
        return any(getattr(self._cascade, way) is not None for way in CASCADE_WAYS)

    def surroundings(self) -> Iterator[UserError]:
        yield from around.run_dir_problems(self.run_dir)
        yield from around.logger_problems(self.logger)
        block = self.benchmark
        if isinstance(block, Transfer):
            for name, training in block.train.items():
                yield from around.checkpoint_problems(
                    f"benchmark.train.{name}.checkpoint", training.checkpoint, "critic"
                )
                if not training.checkpoint:
                    one = {"dataset": name, "path": training.path, "split": None}
                    yield from around.dataset_problems(f"benchmark.train.{name}", one)
            for name, test in block.test.items():
                one = {**test.options, "dataset": name, "path": test.path, "split": test.split}
                yield from around.dataset_problems(f"benchmark.test.{name}", one)
            return
        yield from around.file_problems("predictions", self.predictions)
        yield from around.file_problems("against", self.against)
        yield from around.output_problems("html", self.html)
        if isinstance(block, Protocol):
            yield from protocol_problems(self)
            for key, one in around.benchmark_sets(block):
                yield from around.dataset_problems(key, one)
            return
        kinds = ("generator",) if isinstance(block, Responses) else ("critic", "tagger", "judge")
        if isinstance(block, Responses):
            yield from around.checkpoint_problems("benchmark.critic", block.critic, "critic", "tagger", "judge")
            if self.html:
                hint = "leave html out; a response stands beside its values in the run's scores/"
                yield UserError("the page is for answers with marked spans, as of benchmark=ragtruth", hint=hint)
        given = self.predictions or (isinstance(block, Responses) and block.datasets)
        if isinstance(block, Detection) and block.name == "analysis":
            if block.plots:
                yield from around.package_problems("benchmark.plots=true", "matplotlib", "plots")
        elif (self._model.name or self._is_cascade or self._is_baseline) and isinstance(block, Detection):
            if self._is_baseline:
                yield from baseline_problems(self.selfcheck, self.examiner, self._model, self.checkpoint)
            if self._is_cascade:
                yield from cascade_problems(self._cascade, self._model, self.checkpoint, block.fit_on)
                yield from around.checkpoint_problems("checkpoint", self.checkpoint, *kinds)
            if self._model.name:
                yield from judge_problems(
                    self._model,
                    checkpoint=self.checkpoint,
                    predictions=self.predictions,
                    cascade=self._is_cascade,
                )
                yield from around.prompt_problems("judge", self.judge.ask, self.judge.prompts)  # type: ignore[attr-defined]
                examples = self.judge.examples  # type: ignore[attr-defined]
                yield from around.file_problems("judge.examples", examples if isinstance(examples, str) else None)
        elif not given and not self.checkpoint:
            hint = "checkpoint=PATH of a run, an hf/ folder or a hub name; predictions=FILE; or engine.model=NAME"
            yield UserError("nothing to evaluate: neither checkpoint nor predictions is given", hint=hint)
        else:
            yield from around.checkpoint_problems("checkpoint", self.checkpoint, *kinds)
        for key, one in around.benchmark_sets(block):
            yield from around.dataset_problems(key, one)

    def notes(self, given: Set[str]) -> Iterator[str]:
        named = f"with benchmark={self.benchmark.name}"
        judges = bool(self._model.name) and isinstance(self.benchmark, Detection | Protocol)
        yield from engine_notes(given, self._model, judges=judges)
        if isinstance(self.benchmark, Protocol):
            yield from protocol_notes(given, self)
            return
        if not isinstance(self.benchmark, Responses):
            yield from no_effect.without_effect(given, [*no_effect.GENERATORS_ALONE, "against"], named)
        if isinstance(self.benchmark, Detection) and self.benchmark.name in ("analysis", "suppression"):
            yield from no_effect.without_effect(given, ["benchmark.fit_on", "num_examples"], named)
        if self.benchmark.name == "analysis":
            yield from no_effect.without_effect(given, ["logger"], named)
        if isinstance(self.benchmark, Transfer):
            keys = ["predictions", "checkpoint", "html", "labels", "num_examples"]
            yield from no_effect.without_effect(given, keys, named)
        elif self.predictions is not None:  # of responses, `labels` are those of benchmark.critic
            keys = [*no_effect.GENERATORS_ALONE] if isinstance(self.benchmark, Responses) else ["labels"]
            yield from no_effect.without_effect(given, keys, "beside predictions")


class GenerateSettings(Extensible):
    """generate.py."""

    scale: dict[str, Any]
    best_of: BestOf
    data: Data
    decoding: DecodingBlock  # type: ignore[valid-type]
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
    num_examples: NonNegativeInt

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        check_strategy(self.decoding, self.detector, self.resample)
        return self

    def surroundings(self) -> Iterator[UserError]:
        yield from around.run_dir_problems(self.run_dir)
        yield from around.checkpoint_problems("checkpoint", self.checkpoint, "generator")
        yield from around.checkpoint_problems("detector", self.detector, "critic", "tagger", "judge")
        yield from around.weights_problems("entailment", self.entailment)
        yield from engine_problems(self.engine.name)
        yield from around.part_problems(blocks_of(self.data), self.data.split)

    def notes(self, given: Set[str]) -> Iterator[str]:
        trains = [f"data.{key}" for key in no_effect.TRAINING_ALONE]
        yield from no_effect.without_effect(given, trains, "in generate: nothing is trained")
        if self.resample is None:
            yield from no_effect.without_effect(given, ["entailment"], "without resample")


class ChatSettings(Common):
    """faithkit chat."""

    seed: Seed
    decoding: DecodingBlock  # type: ignore[valid-type]
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
    by: Text | None
    output: PathText | None
    num_rows: NumRows
    on_bad_row: OnBadRow
    labels: ClassLabels = None
    precision: Annotated[str, OneOf(DETECTOR_PRECISIONS)]
    batch_tokens: BatchTokens
    save_every_num_rows: Count
    num_resamples: Resamples

    def surroundings(self) -> Iterator[UserError]:
        yield from around.run_dir_problems(self.run_dir)
        yield from around.file_problems("path", self.path)
        if self.on_bad_row == "stop":  # a first row without them may else be one of those to skip
            yield from around.column_problems(self.path, self.columns.model_dump(), self.by)
        yield from around.output_problems("output", self.output)
        yield from around.checkpoint_problems("checkpoint", self.checkpoint, "critic", "tagger", "judge")


class ExportSettings(Common):
    """export.py."""

    checkpoint: PathText
    output_dir: PathText

    def surroundings(self) -> Iterator[UserError]:
        yield from around.checkpoint_problems("checkpoint", self.checkpoint, "critic", "tagger", "generator", "judge")
        yield from around.run_dir_problems(self.output_dir, "output_dir")
