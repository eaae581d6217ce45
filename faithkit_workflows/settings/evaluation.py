"""The keys of evaluate.py, and the block `benchmark` of each kind of benchmark."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

from pydantic import Discriminator, Field, Tag, model_validator

from faithkit.embedded_name import EMBEDDED
from faithkit.errors import UserError, choice_hint
from faithkit.inference.text import OPENAI
from faithkit.inference.text_engines import EngineOptions
from faithkit.settings import types
from faithkit.settings.check import with_options
from faithkit.settings.types import Ineffective
from faithkit.training.options import Aim
from faithkit_workflows.settings import blocks, engines, preflight
from faithkit_workflows.settings.preflight import USER_DATASETS
from faithkit_workflows.settings.ray import check_evaluating

BASELINES = ("gold", "copy")  # as in faithkit.reports.response_report, without torch
STRATEGIES = ("random", "fewest", "none", "fewest_by_score", "none_by_score")
RESPONSES = "responses"  # the task of a benchmark that scores generated responses
PROTOCOLS = ("comparative", "meta_judging", "rates")
ANALYSIS = "analysis"  # of RAGTruth, which judges nothing
RATE_HISTORIES = ("gold", "self")  # as in faithkit.reports.rates, without numpy
DOMAIN_HISTORIES = ("apart", "joined")  # as in faithkit_workflows.domains.domain_rows, without numpy
DOMAIN_PARTS = ("dev", "held", "all")  # as in the same file
SYSTEMS = "'benchmark.systems={small: {name: transformers, model: smollm2-135m}, other: {gold_predictions: FILE}}'"
GENERATOR_KEYS = ("max_length", "decoding")
TargetName = Annotated[types.Text | None, Field(alias="_target_")]


class Benchmark(types.Block):
    """The keys that most benchmarks have."""

    name: types.Text
    target: TargetName = None
    dataset: types.Text | None = None
    path: types.PathText
    split: blocks.Split
    num_rows: blocks.NumRows
    on_bad_row: blocks.OnBadRow
    options: blocks.DatasetOptions


class BertScore(types.Block):
    """`benchmark.bert_score`: its encoder, and the number of its layers."""

    encoder: types.Text | None
    num_layers: Annotated[types.Count | None, types.Hint("use 1 or more, or null for all layers")]
    baseline: Annotated[float | None, Field(gt=-1, lt=1), types.Hint("use a number below 1, or null")] = None


class Detection(Benchmark, types.OpenBlock):
    """A benchmark of a detector; RAGTruth's analysis and suppression have further keys."""

    fit_on: list[blocks.LabelledSet] = Field(default_factory=list)
    by: Annotated[list[types.Text], types.Hint("use a list of columns, [language,customer]")] = Field(
        default_factory=list
    )
    bert_score: BertScore | None = None
    plots: blocks.Plots = False
    groups: dict[str, list[types.Text] | None] | None = None
    strategies: Annotated[list[Annotated[str, types.OneOf(STRATEGIES)]], Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _user_datasets_have_a_path(cls, block: Any) -> Any:
        if isinstance(block, Mapping) and block.get("path") is None and not block.get("_target_"):
            name = block.get("dataset") or block.get("name")
            if isinstance(name, str) and name in USER_DATASETS:
                raise preflight.missing_path("benchmark", name)
        return block


class Q2(types.Block):
    """`benchmark.q2`: the models of Q2."""

    candidates: types.Text | None
    questions: types.Text | None
    question_template: types.Text
    answers: types.Text | None


class ResponseSet(types.OpenBlock):
    """A dataset of `benchmark.datasets`, with the values that it sets for itself."""

    path: types.PathText
    predictions: types.PathText | None = None
    against: types.PathText | None = None
    split: blocks.Split = None
    num_rows: blocks.NumRows = None


class Responses(Benchmark):
    """A benchmark of generated responses."""

    task: Annotated[str, types.OneOf((RESPONSES,))]
    path: types.PathText | None = None  # type: ignore[assignment]
    predictions: types.PathText | None
    against: types.PathText | None
    incomplete: types.Switch
    baselines: list[Annotated[str, types.OneOf(BASELINES)]]
    critic: blocks.DetectorPath
    judges: list[types.Text] = Field(default_factory=list)
    judge_labels: list[blocks.LabelledSet] = Field(default_factory=list)
    bert_score: BertScore | None
    nli: types.Text | None
    q2: Q2 | None
    official: types.Switch = False
    datasets: dict[str, ResponseSet] | None = None


class TransferTraining(types.Block):
    """A critic of the transfer table: trained on `path`, or given as `checkpoint`."""

    path: types.PathText
    checkpoint: Annotated[types.PathText | None, blocks.checkpoint_of("critic")]


class TransferTest(types.Block):
    """A test set of the transfer table."""

    path: types.PathText
    split: blocks.Split
    num_rows: blocks.NumRows
    on_bad_row: blocks.OnBadRow
    options: blocks.DatasetOptions


class Transfer(types.Block):
    """`benchmark=transfer`."""

    name: types.Text
    train: Annotated[dict[str, TransferTraining], Field(min_length=1)]
    test: Annotated[dict[str, TransferTest], Field(min_length=1)]
    threshold_aim: Aim | None = None
    validation_fraction: types.OpenShare | None = None
    overrides: list[types.Text]

    def preflight(self, script: Any) -> Iterator[UserError]:
        for name, training in self.train.items():
            if not training.checkpoint:
                one = {"dataset": name, "path": training.path, "split": None}
                yield from preflight.check_dataset(f"benchmark.train.{name}", one)
        for name, test in self.test.items():
            one = {**test.options, "dataset": name, "path": test.path, "split": test.split}
            yield from preflight.check_dataset(f"benchmark.test.{name}", one)


class DomainSource(types.OpenBlock):
    """A dataset of a domain; the dataset checks further keys."""

    dataset: types.Text | None = None
    target: TargetName = None
    path: types.PathText
    splits: list[types.Text] | None = None
    where: dict[str, Any] | None = None
    fit_only: types.Switch = False


class Domain(types.Block):
    """A domain of `benchmark.domains`; `faithkit_workflows.domains.domain_rows.Domain` explains the keys."""

    title: types.Text
    sources: Annotated[list[DomainSource], Field(min_length=1)]
    texts: list[types.Text]
    corpora: list[types.Text]
    authors: list[types.Text]
    history: Annotated[str, types.OneOf(DOMAIN_HISTORIES)] = "apart"
    max_length_gap: Annotated[
        types.NonNegativeInt | None, types.Hint("use a number of words, or null for all pairs")
    ] = None
    extra: types.Switch = False
    max_rows: blocks.NumRows = None
    test_accesses: types.NonNegativeInt = 0
    nli: types.PathText | None = None


class Domains(types.Block):
    """`benchmark=domains`."""

    name: types.Text
    path: types.PathText
    part: Annotated[str, types.OneOf(DOMAIN_PARTS)]
    only: Annotated[
        Annotated[list[types.Text], Field(min_length=1)] | None,
        types.Hint("use a list of domains, [wow,xsum], or null for all"),
    ]
    encoder: blocks.Weights
    nli: blocks.Weights
    max_fit_rows: blocks.NumRows
    on_bad_row: blocks.OnBadRow
    domains: Annotated[dict[types.Text, Domain], Field(min_length=1)]
    fit_on: ClassVar[list[blocks.LabelledSet]] = []

    @model_validator(mode="after")
    def _only_names_domains(self) -> Any:
        for name in self.only or ():
            if name not in self.domains:
                hint = choice_hint(name, tuple(self.domains))
                raise UserError(f"benchmark.only names no domain: {name!r}", hint=hint)
        return self

    def preflight(self, script: Any) -> Iterator[UserError]:
        root = Path(self.path).expanduser()
        if self.path != EMBEDDED and not root.is_dir():
            hint = preflight.suggest_path("benchmark.path", root, "the folder that holds the corpora")
            yield UserError("no such folder", place=self.path, hint=hint)
            return
        names = list(self.only or self.domains)
        for name in names:
            others = ",".join(other for other in names if other != name)
            for source in self.domains[name].sources:
                path = EMBEDDED if self.path == EMBEDDED else str(root / source.path)
                one = {**(source.model_extra or {}), "dataset": source.dataset, "path": path, "split": None}
                for found in preflight.check_dataset(f"benchmark.domains.{name}", one):
                    if found.problem == "no such file or folder":  # a corpus that is missing can be left out
                        hint = f"benchmark.only=[{others}] leaves {name} out"
                        yield UserError(found.problem, place=path, hint=hint)
                    else:
                        yield found


class Protocol(Benchmark):
    """The keys of every judging protocol."""

    task: Annotated[str, types.OneOf(PROTOCOLS)]


class Comparative(Protocol):
    """`task: comparative` asks which of two replies to the same turn is hallucinated, in both orders."""


class MetaJudging(Protocol):
    """`task: meta_judging` asks whether a judge's judgements are right: a second judge, or people."""

    judgements: blocks.InputFile
    labels: list[types.PathText]
    only_hallucinated: types.Switch


class SystemFiles(types.Block):
    """Files with the responses of a system."""

    gold_predictions: blocks.InputFile = None
    self_predictions: blocks.InputFile = None


class System(with_options(SystemFiles, EngineOptions, "SystemEngine")):  # type: ignore[misc]
    """A language model whose responses are judged: an engine that writes them, or files that hold them."""

    conflicts = (
        types.Conflict(
            lambda s: not (s.name or s.gold_predictions or s.self_predictions),
            "a system without an engine and without predictions",
            SYSTEMS.replace("{", "{{").replace("}", "}}"),
        ),
    )


class Rates(Protocol):
    """`task: rates` measures how often language models hallucinate."""

    systems: Annotated[dict[types.Text, System] | None, types.Hint(SYSTEMS)]
    histories: Annotated[list[Annotated[str, types.OneOf(RATE_HISTORIES)]], Field(min_length=1)]
    temperatures: Annotated[
        Annotated[list[types.NonNegative], Field(min_length=1)] | None,
        types.Hint("use a list such as [0,0.5,1], or null"),
    ]
    prompts: types.PathText | None
    judge_labels: list[blocks.LabelledSet]
    plots: blocks.Plots

    def preflight(self, script: Any) -> Iterator[UserError]:
        if not self.systems:
            yield UserError("no language models are named", place="benchmark.systems", hint=SYSTEMS)
        for name, one in (self.systems or {}).items():
            key, system = f"benchmark.systems.{name}.model", cast(Any, one)
            if system.name and not system.model:
                yield UserError(f"benchmark.systems.{name} has an engine without a model", hint=f"{key}=NAME")
            if system.name:
                yield from engines.check_model(key, system.name, system.model)


TAGS = {RESPONSES: "<responses>"} | {task: f"<{task}>" for task in PROTOCOLS}


def _tag_of(block: Any) -> str:
    if not isinstance(block, dict):
        return "<detection>"
    if (task := block.get("task")) is not None:
        return TAGS.get(str(task), TAGS[RESPONSES])  # which refuses an unknown one
    return {"transfer": "<transfer>", "domains": "<domains>"}.get(str(block.get("name")), "<detection>")


AnyBenchmark = Annotated[
    Annotated[Detection, Tag("<detection>")]
    | Annotated[Responses, Tag("<responses>")]
    | Annotated[Comparative, Tag("<comparative>")]
    | Annotated[MetaJudging, Tag("<meta_judging>")]
    | Annotated[Rates, Tag("<rates>")]
    | Annotated[Transfer, Tag("<transfer>")]
    | Annotated[Domains, Tag("<domains>")],
    Discriminator(_tag_of),
]


def _is(*kinds: type, names: tuple[str, ...] = ()) -> Any:
    """Makes a condition on the kind of benchmark, and on its name."""

    def applies(settings: Any) -> bool:
        block = settings.benchmark
        return any(isinstance(block, kind) for kind in kinds) and (not names or block.name in names)

    return applies


def _asks(settings: Any) -> bool:
    """Reports whether a language model judges."""
    judged = isinstance(settings.benchmark, Detection | Domains | Protocol)
    return judged and bool(settings.engine.name) and settings.engine.name != engines.RAY


NAMED = "with benchmark={s.benchmark.name}"
JUDGING_KEYS = ("judge.ask", "judge.num_samples", "judge.temperature")
DETECTOR_KEYS = ("checkpoint", "decoding", "max_length", "batch_tokens", "max_windows", "labels", "precision")


class EvaluateSettings(blocks.ExtensibleScript):
    """evaluate.py."""

    scale: dict[str, Any]
    benchmark: AnyBenchmark
    decoding: blocks.DecodingBlock
    logger: blocks.Loggers = Field(default_factory=blocks.LoggerBlocks)
    checkpoint: types.PathText | None
    predictions: types.PathText | None
    against: types.PathText | None
    html: types.PathText | None
    batch_tokens: blocks.BatchTokens
    max_windows: blocks.MaxWindows = None
    labels: blocks.ClassLabels = None
    engine: engines.EngineOrRay
    judge: engines.Ask
    cascade: engines.Cascade
    selfcheck: engines.SelfCheck
    examiner: engines.Examiner
    retrieval: engines.Retrieval
    precision: blocks.DetectorPrecision
    max_length: blocks.Length
    save_every_num_rows: types.Count = 2048
    save_texts: types.Switch = True
    ray: engines.Ray
    num_resamples: blocks.Resamples
    num_examples: types.NonNegativeInt
    verbose: types.Switch = False

    conflicts = (
        types.Conflict(
            lambda s: isinstance(s.benchmark, Protocol) and s.html,
            "the page is for answers with marked spans, as of benchmark=ragtruth",
            "leave html out",
        ),
        types.Conflict(
            lambda s: isinstance(s.benchmark, MetaJudging) and s.benchmark.judgements is None,
            "there are no judgements to judge",
            "benchmark.judgements=FILE: predictions of a judge, with its replies",
        ),
        types.Conflict(
            lambda s: (
                isinstance(s.benchmark, Domains)
                and (s.selfcheck.measure or s.examiner.turns or isinstance(s.judge.examples, int))
            ),
            "SelfCheckGPT, LMvLM and examples drawn from training rows need one dataset, and domains have several",
            "evaluate each dataset by itself, or give judge.examples=FILE",
        ),
    )
    ineffective = (
        types.no_effect("engine.name", "engine.model", "judge", where="engine=ray"),
        Ineffective(
            ("engine", "judge"),
            "without a language model as judge",
            lambda s: s.engine.name != engines.RAY and not _asks(s),
        ),
        Ineffective(engines.LOCAL_KEYS, "with engine=openai", lambda s: _asks(s) and s.engine.name == OPENAI),
        Ineffective(engines.SERVER_KEYS, "without engine=openai", lambda s: _asks(s) and s.engine.name != OPENAI),
        types.no_effect("ray", without="engine=ray"),
        Ineffective(("against", "predictions", "max_length"), NAMED, _is(Rates)),
        types.no_effect("decoding.strategy", "decoding.temperature", where="benchmark.temperatures"),
        Ineffective(("against", *DETECTOR_KEYS, *JUDGING_KEYS), NAMED, _is(Comparative, MetaJudging)),
        Ineffective(("predictions",), NAMED, _is(MetaJudging)),
        Ineffective(("max_windows",), NAMED, _is(Responses)),
        Ineffective((*GENERATOR_KEYS, "against"), NAMED, _is(Detection, Domains, Transfer)),
        Ineffective(("html", "retrieval"), NAMED, _is(Domains)),
        Ineffective(("benchmark.fit_on", "num_examples"), NAMED, _is(Detection, names=(ANALYSIS, "suppression"))),
        Ineffective(("logger",), NAMED, _is(Detection, names=(ANALYSIS,))),
        Ineffective(
            ("predictions", "checkpoint", "html", "labels", "max_windows", "num_examples"), NAMED, _is(Transfer)
        ),
        Ineffective(
            GENERATOR_KEYS,
            "with predictions",
            lambda s: isinstance(s.benchmark, Responses) and s.predictions is not None,
        ),
        Ineffective(
            ("labels", "max_windows"),
            "with predictions",
            lambda s: isinstance(s.benchmark, Detection | Domains) and s.predictions is not None,
        ),
    )

    def preflight(self, script: Any) -> Iterator[UserError]:
        block: Any = self.benchmark
        if self.engine.name == engines.RAY:
            judges = isinstance(block, Detection | Domains) and block.name != ANALYSIS
            yield from check_evaluating(self, is_supported=judges or isinstance(block, Responses))
        if isinstance(block, Transfer):
            return
        yield from preflight.check_file("predictions", self.predictions)
        yield from preflight.check_file("against", self.against)
        yield from preflight.check_output_file("html", self.html)
        if isinstance(block, Protocol):
            yield from self._check_protocol(block)
        elif isinstance(block, Responses):
            yield from self._check_checkpoint("generator", has_predictions=bool(self.predictions or block.datasets))
        else:
            yield from self._check_detector(block)
        if not isinstance(block, Domains):
            yield from _check_benchmark_sets(block)

    def _check_protocol(self, block: Protocol) -> Iterator[UserError]:
        takes_checkpoint = isinstance(block, Rates)
        has_replies = bool(self.predictions) and isinstance(block, Comparative)
        if isinstance(block, MetaJudging):
            has_replies = bool(block.labels)
            for path in block.labels:
                yield from preflight.check_file("benchmark.labels", path)
        if self.engine.name:
            yield from engines.check_judge(self.engine, checkpoint=self.checkpoint, predictions=self.predictions)
        elif takes_checkpoint and self.checkpoint:
            yield from engines.check_checkpoint("checkpoint", self.checkpoint, *engines.DETECTORS)
        elif not has_replies:
            hint = "engine=NAME engine.model=NAME" + (" or checkpoint=PATH" if takes_checkpoint else "")
            yield UserError("nothing judges: no language model is named", hint=hint)

    def _check_detector(self, block: Detection | Domains) -> Iterator[UserError]:
        if block.name == ANALYSIS:
            return
        is_baseline = bool(self.selfcheck.measure or self.examiner.turns)
        if self.engine.name == engines.RAY or not (self.engine.name or self.cascade.is_on or is_baseline):
            yield from self._check_checkpoint(*engines.DETECTORS, has_predictions=bool(self.predictions))
            return
        if is_baseline:
            yield from engines.check_baseline(self)
        if self.cascade.is_on:
            yield from engines.check_cascade(self, block.fit_on)
            yield from engines.check_checkpoint("checkpoint", self.checkpoint, *engines.DETECTORS)
        if self.engine.name:
            given = {"checkpoint": self.checkpoint, "predictions": self.predictions}
            yield from engines.check_judge(self.engine, **given, cascade=self.cascade.is_on)
            yield from preflight.check_prompts("judge", self.judge.ask, self.judge.prompts)
            examples = self.judge.examples
            yield from preflight.check_file("judge.examples", examples if isinstance(examples, str) else None)

    def _check_checkpoint(self, *kinds: str, has_predictions: bool) -> Iterator[UserError]:
        if not has_predictions and not self.checkpoint:
            hint = "checkpoint=PATH of a run, an hf/ folder or a hub name; predictions=FILE; or engine.model=NAME"
            yield UserError("nothing to evaluate: neither checkpoint nor predictions is given", hint=hint)
        yield from engines.check_checkpoint("checkpoint", self.checkpoint, *kinds)


def _check_benchmark_sets(block: Any) -> Iterator[UserError]:
    if block.target:
        return
    datasets = getattr(block, "datasets", None) or {}
    for name, one in datasets.items():
        # Of several systems on one dataset, each has another name.
        dataset = (one.model_extra or {}).get("dataset", name)
        split = one.split or block.split
        yield from preflight.check_dataset(
            f"benchmark.datasets.{name}", {"dataset": dataset, "path": one.path, "split": split}
        )
    if not datasets and block.path is not None:
        named = {"dataset": block.dataset or block.name, "path": block.path, "split": block.split}
        yield from preflight.check_dataset("benchmark", {**block.options, **named})
