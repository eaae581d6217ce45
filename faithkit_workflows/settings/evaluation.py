"""The keys of evaluate.py: what `check_settings` is given."""

from collections.abc import Iterator, Set
from typing import Annotated, Any

from pydantic import Field

from faithkit.errors import UserError
from faithkit.settings.types import (
    DETECTOR_PRECISIONS,
    Count,
    NonNegativeInt,
    OneOf,
    PathText,
    Switch,
)
from faithkit_workflows.settings import datasets, no_effect
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.benchmarks import AnyBenchmark, Detection, Responses, Transfer
from faithkit_workflows.settings.blocks import (
    AsBlock,
    ClassLabels,
    DecodingBlock,
    Loggers,
    Resamples,
)
from faithkit_workflows.settings.common import BatchTokens, Extensible, Length, MaxWindows
from faithkit_workflows.settings.domains import Domains, domain_notes, domain_problems
from faithkit_workflows.settings.engines import (
    Ask,
    Cascade,
    EngineOrRayOptions,
    Examiner,
    Retrieval,
    SelfCheck,
    baseline_problems,
    cascade_problems,
    engine_notes,
    judge_problems,
)
from faithkit_workflows.settings.protocols import Protocol, protocol_notes, protocol_problems
from faithkit_workflows.settings.sharded import RAY, RayOptions, evaluating_problems

DETECTORS = ("critic", "tagger", "judge")
EngineOrRay = Annotated[EngineOrRayOptions, AsBlock(), Field(default_factory=EngineOrRayOptions)]


class EvaluateSettings(Extensible):
    """evaluate.py."""

    scale: dict[str, Any]
    benchmark: AnyBenchmark
    decoding: DecodingBlock
    logger: Loggers = Field(default_factory=Loggers)
    checkpoint: PathText | None
    predictions: PathText | None
    against: PathText | None
    html: PathText | None
    batch_tokens: BatchTokens
    max_windows: MaxWindows = None
    labels: ClassLabels = None
    engine: EngineOrRay
    judge: Ask
    cascade: Cascade
    selfcheck: SelfCheck
    examiner: Examiner
    retrieval: Retrieval
    precision: Annotated[str, OneOf(DETECTOR_PRECISIONS)]
    max_length: Length
    save_every_num_rows: Count = 2048
    save_texts: Switch = True
    ray: Annotated[RayOptions, AsBlock(), Field(default_factory=RayOptions)]
    num_resamples: Resamples
    num_examples: NonNegativeInt
    verbose: Switch = False

    def surroundings(self) -> Iterator[UserError]:
        yield from around.run_dir_problems(self.run_dir)
        yield from around.logger_problems(self.logger)
        yield from around.precision_problems(self.precision)
        block = self.benchmark
        if self.engine.name == RAY:
            judges = isinstance(block, Detection | Domains) and block.name != "analysis"
            yield from evaluating_problems(self, takes=judges or isinstance(block, Responses))
        if isinstance(block, Transfer):
            yield from _transfer_problems(block)
            return
        yield from around.file_problems("predictions", self.predictions)
        yield from around.file_problems("against", self.against)
        yield from around.output_problems("html", self.html)
        if isinstance(block, Protocol):
            yield from protocol_problems(self)
        elif isinstance(block, Responses):
            yield from self._response_problems(block)
        elif isinstance(block, Domains):
            yield from domain_problems(self)
            yield from self._detection_problems(block)
            return
        else:
            yield from self._detection_problems(block)
        for key, one in datasets.benchmark_sets(block):
            yield from datasets.dataset_problems(key, one)

    def _response_problems(self, block: Responses) -> Iterator[UserError]:
        yield from around.checkpoint_problems("benchmark.critic", block.critic, *DETECTORS)
        yield from self._checkpoint_problems("generator", has_predictions=bool(self.predictions or block.datasets))

    def _detection_problems(self, block: Detection | Domains) -> Iterator[UserError]:
        if isinstance(block, Detection) and block.name == "analysis":
            if block.plots:
                yield from around.package_problems("benchmark.plots=true", "matplotlib", "plots")
            return
        is_baseline = bool(self.selfcheck.measure or self.examiner.turns)
        if self.engine.name == RAY or not (self.engine.name or self.cascade.is_on or is_baseline):
            yield from self._checkpoint_problems(*DETECTORS, has_predictions=bool(self.predictions))
            return
        if is_baseline:
            yield from baseline_problems(self.selfcheck, self.examiner, self.engine, self.checkpoint)
        if self.cascade.is_on:
            yield from cascade_problems(
                self.cascade, self.engine, self.checkpoint, block.fit_on if isinstance(block, Detection) else []
            )
            yield from around.checkpoint_problems("checkpoint", self.checkpoint, *DETECTORS)
        if self.engine.name:
            given = {"checkpoint": self.checkpoint, "predictions": self.predictions}
            yield from judge_problems(self.engine, **given, cascade=self.cascade.is_on)
            yield from around.prompt_problems("judge", self.judge.ask, self.judge.prompts)
            examples = self.judge.examples
            yield from around.file_problems("judge.examples", examples if isinstance(examples, str) else None)

    def _checkpoint_problems(self, *kinds: str, has_predictions: bool) -> Iterator[UserError]:
        if has_predictions or self.checkpoint:
            yield from around.checkpoint_problems("checkpoint", self.checkpoint, *kinds)
            return
        hint = "checkpoint=PATH of a run, an hf/ folder or a hub name; predictions=FILE; or engine.model=NAME"
        yield UserError("nothing to evaluate: neither checkpoint nor predictions is given", hint=hint)

    def notes(self, given: Set[str]) -> Iterator[str]:
        named = f"with benchmark={self.benchmark.name}"
        asks = bool(self.engine.name) and self.engine.name != RAY
        judges = asks and isinstance(self.benchmark, Detection | Domains | Protocol)
        if self.engine.name == RAY:
            yield from no_effect.without_effect(given - {"engine"}, ["engine", "judge"], "with engine=ray")
        else:
            yield from engine_notes(given, self.engine, judges=judges)
            yield from no_effect.without_effect(given, ["ray"], "without engine=ray")
        if isinstance(self.benchmark, Protocol):
            yield from protocol_notes(given, self)
            return
        if isinstance(self.benchmark, Responses):
            yield from no_effect.without_effect(given, ["max_windows"], named)
        else:
            yield from no_effect.without_effect(given, [*no_effect.GENERATORS_ALONE, "against"], named)
        if isinstance(self.benchmark, Domains):
            yield from domain_notes(given)
        if isinstance(self.benchmark, Detection) and self.benchmark.name in ("analysis", "suppression"):
            yield from no_effect.without_effect(given, ["benchmark.fit_on", "num_examples"], named)
        if self.benchmark.name == "analysis":
            yield from no_effect.without_effect(given, ["logger"], named)
        if isinstance(self.benchmark, Transfer):
            keys = ["predictions", "checkpoint", "html", "labels", "max_windows", "num_examples"]
            yield from no_effect.without_effect(given, keys, named)
        elif self.predictions is not None:  # of responses, `labels` are those of benchmark.critic
            keys = [*no_effect.GENERATORS_ALONE] if isinstance(self.benchmark, Responses) else ["labels", "max_windows"]
            yield from no_effect.without_effect(given, keys, "beside predictions")


def _transfer_problems(block: Transfer) -> Iterator[UserError]:
    for name, training in block.train.items():
        yield from around.checkpoint_problems(f"benchmark.train.{name}.checkpoint", training.checkpoint, "critic")
        if not training.checkpoint:
            one = {"dataset": name, "path": training.path, "split": None}
            yield from datasets.dataset_problems(f"benchmark.train.{name}", one)
    for name, test in block.test.items():
        one = {**test.options, "dataset": name, "path": test.path, "split": test.split}
        yield from datasets.dataset_problems(f"benchmark.test.{name}", one)
