"""The blocks `engine` and `judge`, and what is wrong or without effect in them."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, model_validator

from faithkit.errors import UserError
from faithkit.inference.text_engines import AUTO, ENGINES, OPENAI, TRANSFORMERS, VLLM, EngineOptions
from faithkit.settings.types import Block, OneOf
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.blocks import AsBlock
from faithkit_workflows.settings.cascade import CascadeOptions
from faithkit_workflows.settings.data import FittingSet
from faithkit_workflows.settings.no_effect import without_effect
from faithkit_workflows.settings.retrieval import RetrievalOptions
from faithkit_workflows.settings.sharded import RAY
from judge.asking import AskOptions
from judge.examiner_options import ExaminerOptions
from judge.selfcheck_options import DRAWN, NLI, PROMPT, SelfCheckOptions

# Configurations of older runs lack some of these blocks: each has its defaults.
Engine = Annotated[EngineOptions, AsBlock(), Field(default_factory=EngineOptions)]
Ask = Annotated[AskOptions, AsBlock(), Field(default_factory=AskOptions)]
Cascade = Annotated[CascadeOptions, AsBlock(), Field(default_factory=CascadeOptions)]
SelfCheck = Annotated[SelfCheckOptions, AsBlock(), Field(default_factory=SelfCheckOptions)]
Retrieval = Annotated[RetrievalOptions, AsBlock(), Field(default_factory=RetrievalOptions)]
Examiner = Annotated[ExaminerOptions, AsBlock(), Field(default_factory=ExaminerOptions)]
GENERATOR_ENGINES = (AUTO, TRANSFORMERS, VLLM, RAY)

OF_A_LOCAL_MODEL = tuple(f"engine.{key}" for key in ("precision", "batch_size", "max_length", "memory_fraction"))
OF_A_SERVER = tuple(
    f"engine.{key}"
    for key in ("base_url", "api_key_variable", "concurrency", "max_retries", "timeout_seconds", "price")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOrRayOptions(EngineOptions):
    """The block `engine` where `ray` stands beside the engines: it asks no language model, but runs on a cluster."""

    name: Annotated[Any, OneOf((None, *ENGINES, RAY))] = None


class GeneratorEngine(Block):
    """`engine` of generate.py; configurations of older runs have its name alone."""

    name: Annotated[str, OneOf(GENERATOR_ENGINES)]

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


def engine_problems(name: str | None) -> Iterator[UserError]:
    """Finds an engine whose package is not installed."""
    if name in ("vllm", OPENAI):
        yield from around.package_problems(f"engine={name}", name, name)


def judge_problems(
    engine: EngineOptions, *, checkpoint: str | None, predictions: str | None, cascade: bool = False
) -> Iterator[UserError]:
    """Finds a language model that is not named, or stands beside another detector with which it is no cascade."""
    yield from engine_problems(engine.name)
    hints = {"checkpoint": "leave one out, or make them a cascade: cascade.budget=0.2", "predictions": "leave one out"}
    given = {"checkpoint": checkpoint if not cascade else None, "predictions": predictions}
    for key, value in given.items():
        if value:
            yield UserError(f"engine={engine.name} and {key} are given: one of them judges", hint=hints[key])
    if not engine.model:
        hint = "engine.model=NAME: a folder, a local name or a hub name; of a server the model's name there"
        yield UserError(f"engine={engine.name} without a model", hint=hint)
    elif engine.name != OPENAI:
        yield from around.weights_problems("engine.model", engine.model)


def cascade_problems(
    cascade: CascadeOptions, engine: EngineOptions, checkpoint: str | None, fit_on: Sequence[FittingSet]
) -> Iterator[UserError]:
    """Finds a cascade that lacks one of its detectors, or the rows to choose its band on."""
    if not cascade.band and not fit_on:
        problem = "a cascade's band is chosen on rows that are not tested, and none are named"
        yield UserError(problem, hint="benchmark.fit_on=[{dataset: NAME, path: PATH, split: validation}]")
    elif cascade.max_budget is not None and not fit_on:
        yield UserError("cascade.max_budget needs rows to choose bands on", hint="benchmark.fit_on=[{dataset, path}]")
    if not engine.name or not checkpoint:
        hint = "checkpoint=CRITIC engine=transformers engine.model=JUDGE"
        yield UserError("a cascade is of a checkpoint and a language model", hint=hint)


def baseline_problems(
    selfcheck: SelfCheckOptions, examiner: ExaminerOptions, engine: EngineOptions, checkpoint: str | None
) -> Iterator[UserError]:
    """Finds a prompted baseline without what it needs, or beside another detector."""
    on = [
        key
        for key, value in {"selfcheck.measure": selfcheck.measure, "examiner.turns": examiner.turns}.items()
        if value
    ]
    if len(on) > 1 or checkpoint:
        others = [*on, *(["checkpoint"] if checkpoint else [])]
        yield UserError(f"{' and '.join(others)} are given: one of them judges", hint=f"leave out {others[-1]}")
    needs_model = bool(examiner.turns) or selfcheck.samples == DRAWN or selfcheck.measure == PROMPT
    if needs_model and not engine.name:
        hint = "engine=transformers engine.model=NAME" + ("" if examiner.turns else ", or selfcheck.samples=others")
        yield UserError(f"{on[0]} asks a language model, and none is named", hint=hint)
    if selfcheck.measure == NLI and selfcheck.nli is None:
        hint = "selfcheck.nli=RUN of faithkit train model=critic data=snli, or an NLI model's name"
        yield UserError("selfcheck.measure=nli needs an NLI model", hint=hint)
    if selfcheck.measure:
        yield from around.weights_problems("selfcheck.nli", selfcheck.nli)
        yield from around.weights_problems("selfcheck.encoder", selfcheck.encoder)
    if engine.name != OPENAI:
        yield from around.weights_problems("examiner.examinee", examiner.examinee)


def engine_notes(given: Set[str], engine: EngineOptions, *, judges: bool) -> Iterator[str]:
    """Finds keys of the two blocks that are given and do nothing.

    Args:
        judges: A language model judges.
    """
    if not judges:
        yield from without_effect(given, ["engine", "judge"], "without a language model as judge")
    elif engine.name == OPENAI:
        yield from without_effect(given, OF_A_LOCAL_MODEL, "with engine=openai")
    else:
        yield from without_effect(given, OF_A_SERVER, "without engine=openai")
