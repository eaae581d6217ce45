"""The keys of construct.py, and the block `pipeline` of each of its pipelines."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from data_modules.datasets.diahalu import DOMAINS
from data_modules.reading.fields import ANY
from faithkit.errors import UserError
from faithkit.inference.text import OPENAI
from faithkit.inference.text_engines import EngineOptions
from faithkit.languages import ENGLISH
from faithkit.packages import NEEDS, missing
from faithkit.records import HALLUCINATED
from faithkit.settings import types
from faithkit.settings.config_files import EMBEDDED, ORIGINAL, SAMPLING_RULES, UNANSWERABLE
from faithkit.settings.types import Ineffective
from faithkit_workflows.settings import blocks, engines, preflight
from faithkit_workflows.settings.engines import is_sharded

SCHEMES = ("faithdial", "ragtruth", "diahalu", "halludial", "likert", UNANSWERABLE, "fallback")
ANNOTATIONS = "annotations.jsonl"  # the answers of a run of pipeline=annotate
NAMED = "with pipeline={s.pipeline.name}"
Language = Annotated[Any, types.OneOf((ENGLISH, None))]


class Pipeline(types.Block):
    """The keys of every pipeline.

    Attributes:
        asks: Whether it asks language models.
    """

    asks: ClassVar[bool] = True
    name: types.Text


class DatasetPipeline(Pipeline):
    """A pipeline over the rows of a dataset."""

    dataset: types.Text
    path: types.PathText
    split: blocks.Split
    options: blocks.DatasetOptions
    on_bad_row: blocks.OnBadRow

    def preflight(self, script: Any) -> Iterator[UserError]:
        yield from preflight.check_dataset("pipeline", self.dataset, self.path, self.split, self.options)


class Written(Pipeline):
    """The keys of pipelines that write a benchmark of models' responses."""

    embedded_rows: blocks.EmbeddedRows
    test_fraction: types.PartialShare
    near_duplicates: Annotated[
        Annotated[float, types.Range(ge=0.1, le=1)] | None, types.OrNull("for equal texts alone")
    ]
    temperature: types.NonNegative
    max_new_tokens: types.Count
    language: Language


class Spontaneous(DatasetPipeline, Written):
    """`pipeline=spontaneous`."""

    max_words: types.Count
    max_judgement_tokens: types.Count
    weigh_verdicts: types.Switch
    detector: blocks.DetectorPath


class Induced(DatasetPipeline, Written):
    """`pipeline=induced`."""

    kinds: Annotated[list[str], types.SomeOf(("factual", "faithfulness"))]


class Rag(Written):
    """`pipeline=rag`."""

    path: types.PathText
    on_bad_row: blocks.OnBadRow
    nulls: Annotated[str, types.OneOf(("keep", "drop"))]

    def preflight(self, script: Any) -> Iterator[UserError]:
        if self.path != EMBEDDED and not Path(self.path).expanduser().exists():
            hint = "name a source_info.jsonl in RAGTruth's layout, or the folder that has it"
            yield UserError("pipeline.path: no such file or folder", place=self.path, hint=hint)


class FaithdialEdit(DatasetPipeline):
    """`pipeline=faithdial_edit`."""

    embedded_rows: blocks.EmbeddedRows
    which: Annotated[str, types.OneOf(("tags", "detector", "all"))]
    detector: blocks.DetectorPath
    candidates: Annotated[int, types.Range(ge=1, le=100)]
    temperature: types.Positive
    top_p: types.PositiveShare
    max_words: types.Count
    max_new_tokens: types.Count
    max_copied_words: types.NonNegativeInt
    language: Language

    conflicts = (types.requires("pipeline.which=detector", "pipeline.detector=PATH"),)


class SelfDialogue(Pipeline):
    """`pipeline=self_dialogue`."""

    topics: Annotated[types.PathText | types.Texts, types.Hint(f"use {EMBEDDED}, a file, a folder, or a list of them")]
    domains: Annotated[
        Annotated[str, types.OneOf((ANY,))] | Annotated[list[str], types.SomeOf(DOMAINS)],
        types.Hint(f"use {ANY}, or a list of some of {', '.join(DOMAINS)}"),
    ]
    on_bad_row: blocks.OnBadRow
    opening: Annotated[str, types.OneOf(("model", "topic"))]
    rounds: Annotated[int, types.Range(ge=1, le=100)]
    min_rounds: types.Count
    temperature: types.NonNegative
    max_words: types.Count
    max_new_tokens: types.Count
    language: Language
    edit_domains: Annotated[list[str], types.SomeOf(DOMAINS, least=0)]
    detector: blocks.DetectorPath = None

    conflicts = (
        types.Conflict(
            lambda s: s.min_rounds > s.rounds,
            "pipeline.min_rounds is {s.min_rounds}, and a dialogue has {s.rounds} rounds",
            "pipeline.min_rounds={s.rounds}",
        ),
        types.Conflict(
            lambda s: EMBEDDED in s.paths and len(s.paths) > 1,
            f"pipeline.topics names {EMBEDDED} and files",
            "use one or the other",
        ),
    )

    @property
    def paths(self) -> list[str]:
        """The topic files and folders."""
        return [self.topics] if isinstance(self.topics, str) else self.topics

    def preflight(self, script: Any) -> Iterator[UserError]:
        from construction.topics import topic_files

        try:
            if EMBEDDED not in self.paths:
                topic_files(self.paths)
        except UserError as error:
            yield error


class Describe(DatasetPipeline):
    """`pipeline=describe`."""

    asks: ClassVar[bool] = False
    wow_path: types.PathText | None
    facets: blocks.Names
    plots: blocks.Plots
    num_resamples: blocks.Resamples


class EstimateColumns(types.Block):
    """`pipeline.columns`: the names of the columns that are read."""

    id: types.Text | None
    label: types.Text
    score: types.Text | None
    group: types.Text | None


class LabelColumns(types.Block):
    """`pipeline.label_columns`: those of the labels."""

    id: types.Text
    label: types.Text


class Estimate(Pipeline):
    """`pipeline=estimate`."""

    asks: ClassVar[bool] = False
    predictions: types.PathText
    labels: blocks.InputFile
    dataset: types.Text | None
    path: types.PathText | None
    split: blocks.Split
    options: blocks.DatasetOptions
    columns: EstimateColumns
    label_columns: LabelColumns
    by: types.Text | None
    width: types.OpenShare | None
    label_next: Annotated[types.Count | None, types.OrNull("for none")]
    rule: Annotated[str, types.OneOf(SAMPLING_RULES)]
    power: Annotated[Annotated[float, types.Range(ge=0, le=2)] | None, types.OrNull("to tune it")]
    num_resamples: blocks.Resamples

    conflicts = (
        types.requires("pipeline.width", "pipeline.labels=FILE"),
        types.Conflict(
            lambda s: not s.is_sharded and s.columns.id is None,
            "pipeline.columns.id=null names the rows of shards, and this is a single file",
            "pipeline.columns.id=NAME",
        ),
        types.Conflict(
            lambda s: s.is_sharded and s.dataset is not None,
            "pipeline.dataset needs a single file, and these are shards",
            "name columns of the shards: pipeline.by, pipeline.columns.group",
        ),
    )

    @property
    def is_sharded(self) -> bool:
        """Whether the predictions are shards."""
        return is_sharded(self.predictions)

    def preflight(self, script: Any) -> Iterator[UserError]:
        if self.is_sharded:
            return
        yield from preflight.check_file("pipeline.predictions", self.predictions)
        if self.labels is None and self.label_next is None:
            hint = "pipeline.labels=FILE, or pipeline.label_next=50 to choose what to label first"
            yield UserError("there is nothing to do: neither labels nor label_next is given", hint=hint)
        if self.dataset is not None:
            yield from preflight.check_dataset("pipeline", self.dataset, self.path, self.split, self.options)


def _check_systems(key: str, systems: dict[str, str]) -> Iterator[UserError]:
    for name, path in systems.items():
        if not (Path(path).expanduser() / "predictions").is_dir():  # else a run
            yield from preflight.check_file(f"{key}.{name}", path)


class Annotate(DatasetPipeline):
    """`pipeline=annotate`."""

    asks: ClassVar[bool] = False
    scheme: Annotated[str, types.OneOf(SCHEMES)]
    text: Annotated[str, types.OneOf(("response", ORIGINAL))]
    only: Annotated[str | None, types.OneOf((UNANSWERABLE, HALLUCINATED, None))]
    sample: types.Count | None
    suggest: Annotated[str, types.OneOf(("none", "gold", "predictions"))]
    predictions: blocks.InputFile
    systems: Annotated[
        Annotated[dict[types.Text, types.PathText], Field(min_length=1)] | None,
        types.Hint("use {NAME: FILE, NAME: FILE}, or null"),
        types.Preflight(_check_systems),
    ]
    export: blocks.InputFile
    on_bad_annotation: Annotated[str, types.OneOf(("stop", "skip"))]
    adjudicate: Annotated[str, types.OneOf(("majority", "severe", "expert", "hand"))]
    expert: types.Text | None
    decisions: blocks.InputFile
    min_annotators: types.Count

    conflicts = (
        types.requires("pipeline.suggest=predictions", "pipeline.predictions=FILE"),
        types.requires("pipeline.only=hallucinated", "pipeline.systems={{NAME: FILE}}"),
        types.requires("pipeline.adjudicate=expert", "pipeline.expert=NAME", "set pipeline.expert=NAME, or a file"),
    )


def annotations_file(given: str) -> Path:
    """Finds the file of answers: the path itself, or that of a run of pipeline=annotate."""
    path = Path(given).expanduser()
    return path / ANNOTATIONS if path.is_dir() else path


class Agreement(Pipeline):
    """`pipeline=agreement`."""

    asks: ClassVar[bool] = False
    annotations: types.PathText
    title: Annotated[str, Field(pattern="^[^/]+$")] | None
    num_resamples: types.Count

    def preflight(self, script: Any) -> Iterator[UserError]:
        yield from preflight.check_file("pipeline.annotations", str(annotations_file(self.annotations)))


PIPELINES: Mapping[str, type[Pipeline]] = {
    "spontaneous": Spontaneous,
    "induced": Induced,
    "rag": Rag,
    "describe": Describe,
    "estimate": Estimate,
    "annotate": Annotate,
    "agreement": Agreement,
    "self_dialogue": SelfDialogue,
    "faithdial_edit": FaithdialEdit,
}


class ConstructSettings(blocks.ExtensibleScript):
    """construct.py."""

    scale: dict[str, Any]
    pipeline: Annotated[
        Any, types.Variants(lambda block: PIPELINES.get(str(block.get("name"))) if isinstance(block, dict) else None)
    ]
    engine: engines.Engine
    models: Annotated[
        types.Texts | Annotated[dict[types.Text, EngineOptions], Field(min_length=1)] | None,
        types.Hint("use [NAME,NAME], or blocks by name: 'models={small: {name: transformers, model: smollm2-135m}}'"),
    ]
    prompts: types.PathText | None
    labels: blocks.ClassLabels = None
    limit: blocks.NumRows
    retry_failed: types.Switch
    dry_run: types.Switch
    verbose: types.Switch = False

    conflicts = (
        types.Conflict(
            lambda s: s.pipeline.asks and not (s.engine.name and s.engine.model),
            "no language model is named",
            "engine=transformers engine.model=smollm2-135m, or engine=openai engine.base_url=URL engine.model=NAME",
        ),
    )
    ineffective = (
        types.no_effect("labels", without="pipeline.detector"),
        Ineffective(("models", "prompts", "engine"), NAMED, lambda s: not s.pipeline.asks),
        Ineffective(engines.LOCAL_KEYS, "with engine=openai", lambda s: s.pipeline.asks and s.engine.name == OPENAI),
        Ineffective(
            engines.SERVER_KEYS,
            "without engine=openai",
            lambda s: s.pipeline.asks and s.engine.name != OPENAI and not isinstance(s.models, dict),
        ),
    )

    def preflight(self, script: Any) -> Iterator[UserError]:
        if (use := f"pipeline={self.pipeline.name}") in NEEDS:
            yield from missing(use)
        if getattr(self.pipeline, "near_duplicates", None) is not None and not self.dry_run:
            yield from missing("near_duplicates", "pipeline.near_duplicates")
        if self.pipeline.asks:
            yield from engines.check_model("engine.model", self.engine.name, self.engine.model)
            engine: Any = self.engine
            if isinstance(self.models, list):
                for number, model in enumerate(self.models):
                    yield from engines.check_model(f"models.{number}", engine.name, model)
            for name, one in self.models.items() if isinstance(self.models, dict) else ():
                key, model = f"models.{name}.model", one.model or engine.model
                yield from engines.check_model(key, one.name or engine.name, model)
