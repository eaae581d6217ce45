"""The block `benchmark` of the judging protocols: two replies compared, judgements judged, rates of language models."""

from collections.abc import Iterator, Set
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from faithkit.errors import UserError
from faithkit.inference.text_engines import OPENAI, EngineOptions
from faithkit.settings.types import Block, Hint, NonNegative, OneOf, PathText, Switch, Text
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.blocks import with_options
from faithkit_workflows.settings.data import FittingSet, NumRows, OnBadRow, Split
from faithkit_workflows.settings.engines import engine_problems, judge_problems
from faithkit_workflows.settings.no_effect import without_effect

Options = dict[str, Any]  # a dataset's own, which the dataset checks
HISTORIES = ("gold", "self")  # as in faithkit.reports.rates, without numpy
SYSTEMS = "'benchmark.systems={small: {name: transformers, model: smollm2-135m}, other: {gold_predictions: FILE}}'"
PROTOCOLS = ("comparative", "meta_judging", "rates")
OF_JUDGEMENTS = tuple(f"judge.{key}" for key in ("ask", "num_samples", "temperature"))


class Protocol(Block):
    """The keys of every protocol: which examples of a dataset it reads."""

    name: Text
    task: Annotated[str, OneOf(PROTOCOLS)]
    dataset: Text | None = None
    target: Text | None = Field(None, alias="_target_")
    path: PathText
    split: Split
    num_rows: NumRows
    on_bad_row: OnBadRow
    options: Options


class Comparative(Protocol):
    """`task: comparative` asks which of two replies to the same turn is hallucinated, in both orders."""


class MetaJudging(Protocol):
    """`task: meta_judging` asks whether a judge's judgements are right: a second judge, or people."""

    judgements: PathText | None
    labels: list[PathText]
    only_hallucinated: Switch


class System(with_options(Block, EngineOptions, "SystemEngine")):  # type: ignore[misc]
    """A language model whose responses are judged: an engine that writes them, or files that hold them."""

    gold_predictions: PathText | None = None
    self_predictions: PathText | None = None

    @model_validator(mode="after")
    def _has_responses(self) -> Self:
        if not (self.name or self.gold_predictions or self.self_predictions):
            raise UserError("a system without an engine and without predictions", hint=SYSTEMS)
        return self


class Rates(Protocol):
    """`task: rates` measures how often language models hallucinate."""

    systems: Annotated[dict[Text, System] | None, Hint(SYSTEMS)]
    histories: Annotated[list[Annotated[str, OneOf(HISTORIES)]], Field(min_length=1)]
    temperatures: Annotated[
        Annotated[list[NonNegative], Field(min_length=1)] | None, Hint("use a list such as [0,0.5,1], or null")
    ]
    prompts: PathText | None
    judge_labels: list[FittingSet]
    plots: Switch


def protocol_problems(settings: Any) -> Iterator[UserError]:
    """Finds what a protocol lacks beside its block: a model that judges, files, packages."""
    block, engine = settings.benchmark, settings.engine
    if settings.html:
        yield UserError("the page is for answers with marked spans, as of benchmark=ragtruth", hint="leave html out")
    if isinstance(block, Rates):
        yield from _rates_problems(block)
    if isinstance(block, MetaJudging):
        yield from around.file_problems("benchmark.judgements", block.judgements)
        for path in block.labels:
            yield from around.file_problems("benchmark.labels", path)
        if block.judgements is None:
            hint = "benchmark.judgements=FILE: predictions of a judge, with what it said"
            yield UserError("there are no judgements to judge", hint=hint)
    takes_checkpoint = isinstance(block, Rates)
    if engine.name:
        yield from judge_problems(engine, checkpoint=settings.checkpoint, predictions=settings.predictions)
    elif takes_checkpoint and settings.checkpoint:
        yield from around.checkpoint_problems("checkpoint", settings.checkpoint, "critic", "tagger", "judge")
    elif not _is_given(settings):
        ways = ["engine=NAME engine.model=NAME", *(["checkpoint=PATH"] if takes_checkpoint else [])]
        yield UserError("nothing judges: no language model is named", hint=" or ".join(ways))


def _is_given(settings: Any) -> bool:
    """Tells whether the judge's answers are given: its predictions, or those of people."""
    block = settings.benchmark
    if isinstance(block, MetaJudging):
        return bool(block.labels)
    return bool(settings.predictions) and isinstance(block, Comparative)


def _rates_problems(block: Rates) -> Iterator[UserError]:
    if not block.systems:
        yield UserError("no language models are named", place="benchmark.systems", hint=SYSTEMS)
    for name, one in (block.systems or {}).items():
        key = f"benchmark.systems.{name}"
        system: Any = one
        for files in ("gold_predictions", "self_predictions"):
            yield from around.file_problems(f"{key}.{files}", getattr(system, files))
        if not system.name:
            continue
        yield from engine_problems(system.name)
        if not system.model:
            yield UserError(f"{key} has an engine without a model", hint=f"{key}.model=NAME")
        elif system.name != OPENAI:
            yield from around.weights_problems(f"{key}.model", system.model)
    if block.plots:
        yield from around.package_problems("benchmark.plots=true", "matplotlib", "plots")


def protocol_notes(given: Set[str], settings: Any) -> Iterator[str]:
    """Finds keys that are given and do nothing beside a protocol."""
    named = f"with benchmark={settings.benchmark.name}"
    if isinstance(settings.benchmark, Rates):
        yield from without_effect(given, ["against", "predictions", "max_length"], named)
        if settings.benchmark.temperatures is not None:
            why = "beside benchmark.temperatures"
            yield from without_effect(given, ["decoding.strategy", "decoding.temperature"], why)
        return
    unused = ["against", "checkpoint", "decoding", "max_length", "batch_tokens", "max_windows", "labels", "precision"]
    unused += OF_JUDGEMENTS
    if isinstance(settings.benchmark, MetaJudging):
        unused.append("predictions")
    yield from without_effect(given, unused, named)
