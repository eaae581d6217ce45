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
)
from workflows.settings import datasets, no_effect
from workflows.settings import surroundings as around
from workflows.settings.benchmarks import AnyBenchmark, Detection, Responses, Transfer
from workflows.settings.blocks import (
    ClassLabels,
    DecodingBlock,
    Loggers,
    Resamples,
)
from workflows.settings.cascade import WAYS as CASCADE_WAYS
from workflows.settings.common import BatchTokens, Extensible, Length
from workflows.settings.engines import (
    Ask,
    Cascade,
    Engine,
    Examiner,
    Retrieval,
    SelfCheck,
    baseline_problems,
    cascade_problems,
    engine_notes,
    judge_problems,
)
from workflows.settings.protocols import Protocol, protocol_notes, protocol_problems


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
                    yield from datasets.dataset_problems(f"benchmark.train.{name}", one)
            for name, test in block.test.items():
                one = {**test.options, "dataset": name, "path": test.path, "split": test.split}
                yield from datasets.dataset_problems(f"benchmark.test.{name}", one)
            return
        yield from around.file_problems("predictions", self.predictions)
        yield from around.file_problems("against", self.against)
        yield from around.output_problems("html", self.html)
        if isinstance(block, Protocol):
            yield from protocol_problems(self)
            for key, one in datasets.benchmark_sets(block):
                yield from datasets.dataset_problems(key, one)
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
        for key, one in datasets.benchmark_sets(block):
            yield from datasets.dataset_problems(key, one)

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
