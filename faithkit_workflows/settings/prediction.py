"""The keys of scripts that apply a model to new inputs: generate.py, `faithkit chat`, `faithkit score`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from faithkit.errors import UserError
from faithkit.inference.decoding import NUCLEUS
from faithkit.settings.check import Ineffective
from faithkit.settings.types import (
    PRECISIONS,
    Block,
    Conflict,
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
from faithkit_workflows.settings import preflight
from faithkit_workflows.settings.blocks import (
    BatchTokens,
    BestOf,
    ClassLabels,
    Data,
    DecodingBlock,
    DetectorPath,
    DetectorPrecision,
    ExtensibleScript,
    Folder,
    Length,
    MaxWindows,
    Names,
    NumRows,
    OnBadRow,
    OutputFile,
    RequiredDetector,
    RequiredGenerator,
    Resamples,
    RunScript,
    Script,
    Weights,
)
from faithkit_workflows.settings.engines import (
    RAY,
    WITHOUT_RAY,
    AnswerRay,
    GeneratorEngine,
    Ray,
    ScoreEngine,
    check_engine,
)
from faithkit_workflows.settings.ray import check_answering, check_shards

# Keys of the block `data` that are about training.
TRAINING_KEYS = (
    *("validation_fraction", "test_fraction", "fold", "num_folds", "exclude", "negatives", "batch_size"),
    *("max_tokens", "eval_max_tokens", "num_workers", "streaming"),
    *("num_readers", "num_buffer_rows", "first"),
)
RUN_KEYS = ("data.split", "data.num_rows", "data.on_bad_row", "data.labels", "save_texts", "num_examples", "verbose")
NEEDS_DETECTOR = Conflict(
    lambda s: s.decoding.num_samples > 1 and not s.detector,
    "best_of={s.decoding.num_samples} needs a judge",
    "detector=PATH of a critic or a tagger",
)
WITHOUT_OUT = Ineffective(("out",), "without engine=ray", lambda s: s.engine.name != RAY)


class GenerateSettings(ExtensibleScript):
    """generate.py."""

    scale: dict[str, Any]
    best_of: BestOf
    data: Data
    decoding: DecodingBlock
    checkpoint: RequiredGenerator
    engine: GeneratorEngine
    precision: Annotated[str, OneOf(PRECISIONS)]
    batch_size: Annotated[Count | None, Hint("use 1 or more texts, or null for what suits the device")]
    max_length: Length
    num_rows: NumRows
    control_tokens: Names
    resample: Annotated[Count | None, Hint("use 1 or more answers, or null")]
    entailment: Weights
    detector: DetectorPath
    save_every_num_rows: Count
    save_texts: Switch = True
    num_examples: NonNegativeInt
    verbose: Switch = False
    out: Folder = None
    ray: AnswerRay

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        NEEDS_DETECTOR,
        Conflict(
            lambda s: s.resample is not None and s.detector,
            "resample={s.resample} chooses by features, and detector= by a detector's score",
            "leave one of them out; evaluate.py judges what was resampled",
        ),
        Conflict(
            lambda s: s.resample is not None and s.decoding.strategy != NUCLEUS,
            "{s.decoding.strategy} decoding writes the same again",
            "use decoding=nucleus",
        ),
    )
    ineffective: ClassVar[tuple[Ineffective, ...]] = (
        Ineffective([f"data.{key}" for key in TRAINING_KEYS], "in generate: nothing is trained"),
        Ineffective(("entailment",), "without resample", lambda s: s.resample is None),
        Ineffective(
            RUN_KEYS,
            "with engine=ray, which puts bad rows aside and keeps no run's folder",
            lambda s: s.engine.name == RAY,
        ),
        WITHOUT_OUT,
        WITHOUT_RAY,
    )

    def preflight(self) -> Iterator[UserError]:
        if self.engine.name == RAY:
            yield from check_answering(self)
        else:
            yield from preflight.check_parts(self.data)
        yield from super().preflight()
        yield from check_engine(self.engine.name)


class ChatSettings(Script):
    """faithkit chat."""

    seed: Seed
    decoding: DecodingBlock
    checkpoint: RequiredGenerator
    detector: DetectorPath
    precision: Annotated[str, OneOf(PRECISIONS)]
    max_length: Length
    control_tokens: Names
    best_of: BestOf

    conflicts: ClassVar[tuple[Conflict, ...]] = (NEEDS_DETECTOR,)


class Columns(Block):
    """`columns` of score: the names of the columns that it reads."""

    knowledge: Text | None
    response: Text | None
    history: Text | None
    id: Text | None
    group: Text | None


class ScoreSettings(RunScript):
    """faithkit score."""

    path: PathText
    checkpoint: RequiredDetector
    columns: Columns
    encoding: Text | None = None
    by: Annotated[Text | Annotated[list[Text], Field(min_length=1)] | None, Hint("use by=COLUMN, or by=[ONE,OTHER]")]
    output: OutputFile
    num_rows: NumRows
    on_bad_row: OnBadRow
    labels: ClassLabels = None
    precision: DetectorPrecision
    batch_tokens: BatchTokens
    max_windows: MaxWindows = None
    save_every_num_rows: Count
    save_texts: Switch = True
    threshold: Share | None = None
    abstain_at: Share | None = None
    num_resamples: Resamples
    engine: ScoreEngine = Field(default_factory=ScoreEngine)
    out: Folder = None
    ray: Ray

    ineffective: ClassVar[tuple[Ineffective, ...]] = (
        Ineffective(
            ("on_bad_row", "save_texts"),
            "with engine=ray, which puts bad rows aside and keeps no predictions file",
            lambda s: s.engine.name == RAY,
        ),
        WITHOUT_OUT,
        WITHOUT_RAY,
    )

    def preflight(self) -> Iterator[UserError]:
        if self.engine.name == RAY:
            yield from check_shards(self, self.path)
        else:
            if not Path(self.path).expanduser().is_dir():
                yield from preflight.check_file("path", self.path)
            if self.on_bad_row == "stop":  # else a first row without them can be one to skip
                columns = self.columns.model_dump()
                yield from preflight.check_columns(self.path, columns, self.by, self.encoding)
            yield from preflight.check_output_table("output", self.output, self.path)
        yield from super().preflight()
