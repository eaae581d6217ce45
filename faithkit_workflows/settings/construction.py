"""The keys of construct.py, and the block `pipeline` of each of its pipelines."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Discriminator, Field, Tag

from construction.chain.replies import ENGLISH
from construction.induced import KINDS
from construction.rag_sources import NULLS
from data_modules.datasets.diahalu import DOMAINS
from data_modules.reading.fields import ANY
from faithkit.embedded_name import EMBEDDED
from faithkit.errors import UserError
from faithkit.inference.text_engines import OPENAI, EngineOptions
from faithkit.settings.check import AsBlock, Ineffective
from faithkit.settings.types import (
    Block,
    Conflict,
    Count,
    Hint,
    NonNegative,
    NonNegativeInt,
    OneOf,
    PartialShare,
    PathText,
    Positive,
    PositiveShare,
    Preflight,
    Switch,
    Text,
)
from faithkit_workflows.settings import preflight
from faithkit_workflows.settings.blocks import (
    ClassLabels,
    DatasetOptions,
    DetectorPath,
    EmbeddedRows,
    ExtensibleScript,
    InputFile,
    OnBadRow,
    Plots,
    Resamples,
    Split,
)
from faithkit_workflows.settings.engines import (
    LOCAL_KEYS,
    RAY,
    SERVER_KEYS,
    WITHOUT_RAY,
    EngineOrRay,
    Ray,
    check_model,
)
from faithkit_workflows.settings.ray import check_cluster, is_sharded

SCHEMES = ("faithdial", "ragtruth", "diahalu", "halludial", "likert")
RULES = RANDOM, UNCERTAINTY = ("random", "uncertainty")  # as in faithkit.statistics.label_sampling, without numpy
EXTRA = "pip install 'faithkit[construction]'"
Language = Annotated[Any, OneOf((ENGLISH, None))]


def _check_near_duplicates(key: str, near: float) -> Iterator[UserError]:
    yield from preflight.check_package(f"{key} (all but null)", "datasketch", "construction")


NearDuplicates = Annotated[
    Annotated[float, Field(ge=0.1, le=1)] | None,
    Hint("use a share from 0.1 to 1, or null for equal texts alone"),
    Preflight(_check_near_duplicates),
]


class Pipeline(Block):
    """The keys of every pipeline.

    Attributes:
        asks: Whether it asks language models.
    """

    asks: ClassVar[bool] = True
    name: Text

    def preflight(self, settings: Any) -> Iterator[UserError]:
        """Yields what is missing outside of the command line, besides what the marks of keys find."""
        yield from ()


class DatasetPipeline(Pipeline):
    """A pipeline over the rows of a dataset."""

    dataset: Text
    path: PathText
    split: Split
    options: DatasetOptions
    on_bad_row: OnBadRow

    def preflight(self, settings: Any) -> Iterator[UserError]:
        yield from preflight.check_dataset_block("pipeline", self)


class Spontaneous(DatasetPipeline):
    """`pipeline=spontaneous`."""

    embedded_rows: EmbeddedRows
    test_fraction: PartialShare
    near_duplicates: NearDuplicates
    temperature: NonNegative
    max_words: Count
    max_new_tokens: Count
    max_judgement_tokens: Count
    weigh_verdicts: Switch
    detector: DetectorPath
    language: Language


class Induced(DatasetPipeline):
    """`pipeline=induced`."""

    embedded_rows: EmbeddedRows
    test_fraction: PartialShare
    near_duplicates: NearDuplicates
    kinds: Annotated[list[Annotated[str, OneOf(KINDS)]], Field(min_length=1), Hint(f"use some of {', '.join(KINDS)}")]
    temperature: NonNegative
    max_new_tokens: Count
    language: Language


class Rag(Pipeline):
    """`pipeline=rag`."""

    path: PathText
    embedded_rows: EmbeddedRows
    on_bad_row: OnBadRow
    nulls: Annotated[str, OneOf(NULLS)]
    temperature: NonNegative
    max_new_tokens: Count
    language: Language
    test_fraction: PartialShare
    near_duplicates: NearDuplicates

    def preflight(self, settings: Any) -> Iterator[UserError]:
        if self.path != EMBEDDED and not Path(self.path).expanduser().exists():
            hint = "name a source_info.jsonl in RAGTruth's layout, or the folder that has it"
            yield UserError("pipeline.path: no such file or folder", place=self.path, hint=hint)


class FaithdialEdit(DatasetPipeline):
    """`pipeline=faithdial_edit`."""

    embedded_rows: EmbeddedRows
    which: Annotated[str, OneOf(("tags", "detector", "all"))]
    detector: DetectorPath
    candidates: Annotated[int, Field(ge=1, le=100), Hint("use a whole number from 1 to 100")]
    temperature: Positive
    top_p: PositiveShare
    max_words: Count
    max_new_tokens: Count
    max_copied_words: NonNegativeInt
    language: Language

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            lambda s: s.which == "detector" and s.detector is None,
            "pipeline.which=detector names no detector",
            "pipeline.detector=runs/...",
        ),
    )


SomeDomains = Annotated[list[Annotated[str, OneOf(DOMAINS)]], Hint(f"use a list of some of {', '.join(DOMAINS)}")]


class SelfDialogue(Pipeline):
    """`pipeline=self_dialogue`."""

    topics: Annotated[
        PathText | Annotated[list[PathText], Field(min_length=1)],
        Hint(f"use {EMBEDDED}, a file, a folder, or a list of them"),
    ]
    domains: Annotated[
        Annotated[str, OneOf((ANY,))] | Annotated[SomeDomains, Field(min_length=1)],
        Hint(f"use {ANY}, or a list of some of {', '.join(DOMAINS)}"),
    ]
    on_bad_row: OnBadRow
    opening: Annotated[str, OneOf(("model", "topic"))]
    rounds: Annotated[int, Field(ge=1, le=100), Hint("use a whole number from 1 to 100")]
    min_rounds: Count
    temperature: NonNegative
    max_words: Count
    max_new_tokens: Count
    language: Language
    edit_domains: SomeDomains
    judge: Text | None = None
    judge_types: Switch = False
    weigh_verdicts: Switch = False
    max_judgement_tokens: Count = 100
    detector: DetectorPath = None

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            lambda s: s.min_rounds > s.rounds,
            "pipeline.min_rounds is {s.min_rounds}, and a dialogue has {s.rounds} rounds",
            "pipeline.min_rounds={s.rounds}",
        ),
        Conflict(
            lambda s: s.judge is not None and s.detector is not None,
            "pipeline.judge and pipeline.detector are both named",
            "leave one of them out",
        ),
        Conflict(
            lambda s: s.judge_types and s.judge is None,
            "pipeline.judge_types=true names no judge",
            "pipeline.judge=NAME: a language model",
        ),
        Conflict(
            lambda s: s.weigh_verdicts and s.judge is None,
            "pipeline.weigh_verdicts=true names no judge",
            "pipeline.judge=NAME: a language model",
        ),
        Conflict(
            lambda s: EMBEDDED in s.paths and len(s.paths) > 1,
            f"pipeline.topics names {EMBEDDED} and files",
            "use one or the other",
        ),
    )

    @property
    def paths(self) -> list[str]:
        """The topic files and folders."""
        return [self.topics] if isinstance(self.topics, str) else self.topics

    def preflight(self, settings: Any) -> Iterator[UserError]:
        from construction.dialogues.topics import topic_files

        if self.judge is not None:
            yield from check_model("pipeline.judge", settings.engine.name, self.judge)
        try:
            if EMBEDDED not in self.paths:
                topic_files(self.paths)
        except UserError as error:
            yield error


class Describe(DatasetPipeline):
    """`pipeline=describe`."""

    asks: ClassVar[bool] = False
    facets: Annotated[list[Text] | None, Hint("use a list of names, [task,model], or null for all known ones")]
    plots: Plots
    num_resamples: Resamples


class EstimateColumns(Block):
    """`pipeline.columns`: the names of the columns that are read."""

    id: Text | None
    label: Text
    score: Text | None
    group: Text | None


class LabelColumns(Block):
    """`pipeline.label_columns`: those of the labels."""

    id: Text
    label: Text


class Estimate(Pipeline):
    """`pipeline=estimate`."""

    asks: ClassVar[bool] = False
    predictions: PathText
    labels: InputFile
    dataset: Text | None
    path: PathText | None
    split: Split
    options: DatasetOptions
    columns: EstimateColumns
    label_columns: LabelColumns
    by: Text | None
    width: Annotated[float | None, Field(gt=0, lt=1), Hint("use a share between 0 and 1, 0.1 for ten points, or null")]
    label_next: Annotated[Count | None, Hint("use 1 or more responses, or null for none")]
    rule: Annotated[str, OneOf(RULES)]
    power: Annotated[float | None, Field(ge=0, le=2), Hint("use 0 (labels alone), 1, or null to tune it")]
    num_resamples: Resamples

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            lambda s: s.width is not None and s.labels is None,
            "pipeline.width needs labels to plan by",
            "pipeline.labels=FILE",
        ),
        Conflict(
            lambda s: not s.is_sharded and s.columns.id is None,
            "pipeline.columns.id=null names the rows of shards, and this is a single file",
            "pipeline.columns.id=NAME",
        ),
        Conflict(
            lambda s: s.is_sharded and s.dataset is not None,
            "pipeline.dataset needs a single file, and these are shards",
            "name columns of the shards: pipeline.by, pipeline.columns.group",
        ),
        Conflict(
            lambda s: s.is_sharded and s.label_next is not None and s.rule != RANDOM,
            "pipeline.rule={s.rule} weighs all rows of a file at once, and these are shards",
            "pipeline.rule=random",
        ),
    )

    @property
    def is_sharded(self) -> bool:
        """Whether the predictions are shards."""
        return is_sharded(self.predictions)

    def preflight(self, settings: Any) -> Iterator[UserError]:
        if self.is_sharded:
            if settings.engine.name == RAY:
                yield from check_cluster(settings.ray.address)
            return
        yield from preflight.check_file("pipeline.predictions", self.predictions)
        if settings.engine.name == RAY:
            yield UserError("engine=ray reads scored shards", hint="pipeline.predictions=FOLDER; or leave engine out")
        if self.labels is None and self.label_next is None:
            hint = "pipeline.labels=FILE, or pipeline.label_next=50 to choose what to label first"
            yield UserError("there is nothing to do: neither labels nor label_next is given", hint=hint)
        if self.dataset is not None:
            yield from preflight.check_dataset_block("pipeline", self)


def _check_systems(key: str, systems: dict[str, str]) -> Iterator[UserError]:
    for name, path in systems.items():
        yield from preflight.check_file(f"{key}.{name}", path)


class Annotate(DatasetPipeline):
    """`pipeline=annotate`."""

    asks: ClassVar[bool] = False
    scheme: Annotated[str, OneOf(SCHEMES)]
    sample: Count | None
    suggest: Annotated[str, OneOf(("none", "gold", "predictions"))]
    predictions: InputFile
    systems: Annotated[
        Annotated[dict[Text, PathText], Field(min_length=1)] | None,
        Hint("use {NAME: FILE, NAME: FILE}, or null"),
        Preflight(_check_systems),
    ]
    export: InputFile
    on_bad_annotation: Annotated[str, OneOf(("stop", "skip"))]
    adjudicate: Annotated[str, OneOf(("majority", "severe", "expert", "hand"))]
    expert: Text | None
    decisions: InputFile
    min_annotators: Count

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            lambda s: s.suggest == "predictions" and s.predictions is None,
            "pipeline.suggest=predictions, and there are none",
            "pipeline.predictions=FILE",
        ),
        Conflict(
            lambda s: s.adjudicate == "expert" and s.expert is None,
            "pipeline.adjudicate=expert, and no expert is named",
            "pipeline.expert=NAME, or a file",
        ),
    )


class Agreement(Pipeline):
    """`pipeline=agreement`."""

    asks: ClassVar[bool] = False
    annotations: PathText
    title: Annotated[str, Field(pattern="^[^/]+$")] | None
    num_resamples: Count

    def preflight(self, settings: Any) -> Iterator[UserError]:
        from faithkit_workflows.pipelines.agreement import annotations_file

        yield from preflight.check_file("pipeline.annotations", str(annotations_file(self.annotations)))
        for package in ("krippendorff", "statsmodels"):
            if find_spec(package) is None:
                yield UserError(f"pipeline=agreement needs the package {package}", hint=EXTRA)


AnyPipeline = Annotated[
    Annotated[Spontaneous, Tag("<spontaneous>")]
    | Annotated[Induced, Tag("<induced>")]
    | Annotated[Rag, Tag("<rag>")]
    | Annotated[Describe, Tag("<describe>")]
    | Annotated[Estimate, Tag("<estimate>")]
    | Annotated[Annotate, Tag("<annotate>")]
    | Annotated[Agreement, Tag("<agreement>")]
    | Annotated[SelfDialogue, Tag("<self_dialogue>")]
    | Annotated[FaithdialEdit, Tag("<faithdial_edit>")],
    Discriminator(lambda block: f"<{block['name']}>" if isinstance(block, dict) else None),
]
Models = Annotated[
    Annotated[list[Text], Field(min_length=1)]
    | Annotated[dict[Text, Annotated[EngineOptions, AsBlock()]], Field(min_length=1)]
    | None,
    Hint("use [NAME,NAME], or blocks by name: 'models={small: {name: transformers, model: smollm2-135m}}'"),
]


class ConstructSettings(ExtensibleScript):
    """construct.py."""

    scale: dict[str, Any]
    pipeline: AnyPipeline
    engine: EngineOrRay
    models: Models
    prompts: PathText | None
    labels: ClassLabels = None
    ray: Ray
    limit: Annotated[Count | None, Hint("use a whole number of 1 or more, or null for all")]
    retry_holes: Switch
    dry_run: Switch
    verbose: Switch = False

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            lambda s: s.pipeline.asks and s.engine.name == RAY,
            "engine=ray asks no model, as pipeline={s.pipeline.name} does",
            "engine=transformers engine.model=NAME; pipeline=estimate alone takes engine=ray",
        ),
        Conflict(
            lambda s: s.pipeline.asks and s.engine.name != RAY and not (s.engine.name and s.engine.model),
            "no language model is named",
            "engine=transformers engine.model=smollm2-135m, or engine=openai engine.base_url=URL engine.model=NAME",
        ),
    )
    ineffective: ClassVar[tuple[Ineffective, ...]] = (
        WITHOUT_RAY,
        Ineffective(
            ("labels",),
            "without pipeline.detector",
            lambda s: getattr(s.pipeline, "detector", None) is None,
        ),
        Ineffective(
            ("models", "prompts"),
            "with pipeline={s.pipeline.name}",
            lambda s: not s.pipeline.asks,
        ),
        Ineffective(
            ("engine",),
            "with pipeline={s.pipeline.name}",
            lambda s: not s.pipeline.asks and s.engine.name != RAY,
        ),
        Ineffective(LOCAL_KEYS, "with engine=openai", lambda s: s.pipeline.asks and s.engine.name == OPENAI),
        Ineffective(
            SERVER_KEYS,
            "without engine=openai",
            lambda s: s.pipeline.asks and s.engine.name != OPENAI and not isinstance(s.models, dict),
        ),
    )

    def preflight(self) -> Iterator[UserError]:
        yield from super().preflight()
        if self.pipeline.asks:
            yield from check_model("engine.model", self.engine.name, self.engine.model)
            for key, name, model in self._writers():
                yield from check_model(key, name, model)
        yield from self.pipeline.preflight(self)

    def _writers(self) -> Iterator[tuple[str, str, str]]:
        """Yields the models that write: key, engine and name."""
        engine: Any = self.engine
        if isinstance(self.models, list):
            yield from ((f"models.{number}", engine.name, model) for number, model in enumerate(self.models))
        for name, options in (self.models or {}).items() if isinstance(self.models, dict) else ():
            yield f"models.{name}.model", options.name or engine.name, options.model or engine.model
