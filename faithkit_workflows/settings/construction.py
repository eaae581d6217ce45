"""The keys of construct.py, and the block `pipeline` of each of its pipelines."""

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from construction.chain.replies import ENGLISH
from construction.induced import KINDS
from construction.rag_sources import NULLS
from faithkit.embedded_name import EMBEDDED
from faithkit.errors import UserError
from faithkit.inference.text_engines import OPENAI, EngineOptions
from faithkit.settings.types import (
    Count,
    Hint,
    NonNegative,
    OneOf,
    PartialShare,
    PathText,
    Switch,
    Text,
)
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.annotation import Agreement, Annotate
from faithkit_workflows.settings.blocks import AsBlock, ClassLabels
from faithkit_workflows.settings.common import Extensible
from faithkit_workflows.settings.data import EmbeddedRows, OnBadRow
from faithkit_workflows.settings.engines import OF_A_LOCAL_MODEL, OF_A_SERVER, EngineOrRayOptions, engine_problems
from faithkit_workflows.settings.faithdial_edit import FaithdialEdit
from faithkit_workflows.settings.measuring import Describe, Estimate
from faithkit_workflows.settings.no_effect import without_effect
from faithkit_workflows.settings.pipeline import Dialogues, NearDuplicates, Pipeline, near_duplicate_problems
from faithkit_workflows.settings.self_dialogue import SelfDialogue
from faithkit_workflows.settings.sharded import RAY, RayOptions

Language = Annotated[Any, OneOf((ENGLISH, None))]
MODELS = Hint("use [NAME,NAME], or blocks by name: 'models={small: {name: transformers, model: smollm2-135m}}'")


class Spontaneous(Dialogues):
    """`pipeline=spontaneous`."""

    temperature: NonNegative
    max_words: Count
    max_new_tokens: Count
    max_judgement_tokens: Count
    weigh_verdicts: Switch
    detector: PathText | None
    language: Language

    def problems(self, settings: Any) -> Iterator[UserError]:
        yield from super().problems(settings)
        yield from around.checkpoint_problems("pipeline.detector", self.detector, "critic", "tagger", "judge")


class Induced(Dialogues):
    """`pipeline=induced`."""

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

    def problems(self, settings: Any) -> Iterator[UserError]:
        if self.path != EMBEDDED and not Path(self.path).expanduser().exists():
            hint = "name a source_info.jsonl in RAGTruth's layout, or the folder that has it"
            yield UserError("pipeline.path: no such file or folder", place=self.path, hint=hint)
        yield from near_duplicate_problems(self.near_duplicates)


OwnEngine = Annotated[EngineOptions, AsBlock()]

ConstructEngine = Annotated[EngineOrRayOptions, AsBlock(), Field(default_factory=EngineOrRayOptions)]

# A line for each pipeline.
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


class ConstructSettings(Extensible):
    """construct.py."""

    scale: dict[str, Any]
    pipeline: AnyPipeline
    engine: ConstructEngine
    models: Annotated[
        Annotated[list[Text], Field(min_length=1)] | Annotated[dict[Text, OwnEngine], Field(min_length=1)] | None,
        MODELS,
    ]
    prompts: PathText | None
    labels: ClassLabels = None
    ray: Annotated[RayOptions, AsBlock(), Field(default_factory=RayOptions)]
    limit: Annotated[Count | None, Hint("use a whole number of 1 or more, or null for all")]
    retry_holes: Switch
    dry_run: Switch
    verbose: Switch = False

    @property
    def _engine(self) -> Any:
        return self.engine

    def surroundings(self) -> Iterator[UserError]:
        yield from around.run_dir_problems(self.run_dir)
        if self.pipeline.asks:
            yield from self._model_problems()
        yield from self.pipeline.problems(self)

    def _model_problems(self) -> Iterator[UserError]:
        engine = self._engine
        if engine.name == RAY:
            hint = "engine=transformers engine.model=NAME; pipeline=estimate alone takes engine=ray"
            yield UserError(f"engine=ray asks no model, as pipeline={self.pipeline.name} does", hint=hint)
            return
        if not engine.name or not engine.model:
            hint = (
                "engine=transformers engine.model=smollm2-135m, or engine=openai engine.base_url=URL engine.model=NAME"
            )
            yield UserError("no language model is named", hint=hint)
            return
        yield from engine_problems(engine.name)
        if engine.name != OPENAI:
            yield from around.weights_problems("engine.model", engine.model)
        for key, name, model in self._writers():
            yield from engine_problems(name)
            if name != OPENAI:
                yield from around.weights_problems(key, model)

    def _writers(self) -> Iterator[tuple[str, str, str]]:
        """The models that write: the key, the engine and the model."""
        if isinstance(self.models, list):
            yield from ((f"models.{i}", self._engine.name, model) for i, model in enumerate(self.models))
        for name, one in (self.models or {}).items() if isinstance(self.models, dict) else ():
            own: Any = one
            yield f"models.{name}.model", own.name or self._engine.name, own.model or self._engine.model

    def notes(self, given: Set[str]) -> Iterator[str]:
        if self._engine.name != RAY:
            yield from without_effect(given, ["ray"], "without engine=ray")
        if getattr(self.pipeline, "detector", None) is None:
            yield from without_effect(given, ["labels"], "without pipeline.detector")
        if not self.pipeline.asks:
            reads = [] if self._engine.name == RAY else ["engine"]
            yield from without_effect(given, [*reads, "models", "prompts"], f"with pipeline={self.pipeline.name}")
        elif self._engine.name == OPENAI:
            yield from without_effect(given, OF_A_LOCAL_MODEL, "with engine=openai")
        elif not isinstance(self.models, dict):
            yield from without_effect(given, OF_A_SERVER, "without engine=openai")
