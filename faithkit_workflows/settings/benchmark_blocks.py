"""The block `benchmark` of evaluate.py, for each kind of benchmark."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field, model_validator

from faithkit.errors import UserError, choice_hint
from faithkit.inference.text_engines import EngineOptions
from faithkit.settings import types
from faithkit.settings.check import options, with_options
from faithkit.settings.config_files import EMBEDDED, RANDOM, RATE_HISTORIES, RESPONSE_BASELINES, STRATEGIES
from faithkit.training.training_options import Aim
from faithkit_workflows.settings import blocks, engines, preflight

# The tasks of benchmarks; one without a task is that of a detector, which judges responses one by one.
TASKS = ("responses", "transfer", "domains", "comparative", "meta_judging", "rates")
Task = Annotated[str, types.OneOf(TASKS)]
APART, JOINED = "apart", "joined"
DEV, HELD, ALL = "dev", "held", "all"
SYSTEMS = "'benchmark.systems={small: {name: transformers, model: smollm2-135m}, other: {gold_predictions: FILE}}'"
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
    num_layers: Annotated[types.Count | None, types.OrNull("for all layers")]
    baseline: Annotated[float, types.Range(gt=-1, lt=1)] | None = None


class Detection(Benchmark, types.OpenBlock):
    """A benchmark of a detector; RAGTruth's analysis and suppression have further keys."""

    path: types.PathText | None  # type: ignore[assignment]
    fit_on: list[blocks.LabelledSet] = Field(default_factory=list)
    by: Annotated[list[types.Text], types.Hint("use a list of columns, [language,customer]")] = Field(
        default_factory=list
    )
    bert_score: BertScore | None = None
    official: types.Switch = False
    plots: blocks.Plots = False
    groups: dict[str, list[types.Text] | None] | None = None
    strategies: Annotated[list[str], types.SomeOf((RANDOM, *STRATEGIES))] | None = None


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

    task: Task
    path: types.PathText | None = None  # type: ignore[assignment]
    predictions: types.PathText | None
    against: types.PathText | None
    incomplete: types.Switch
    baselines: Annotated[list[str], types.SomeOf(RESPONSE_BASELINES, least=0)]
    critic: blocks.DetectorPath
    judges: list[types.Text] = Field(default_factory=list)
    metrics: Annotated[list[types.Text], types.Hint("use a list of module:NAME")] = Field(default_factory=list)
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
    """`task: transfer` trains and tests critics on several datasets."""

    name: types.Text
    task: Task
    train: Annotated[dict[str, TransferTraining], Field(min_length=1)]
    test: Annotated[dict[str, TransferTest], Field(min_length=1)]
    threshold_aim: Aim | None = None
    validation_fraction: types.OpenShare | None = None
    overrides: list[types.Text]

    def preflight(self, script: Any) -> Iterator[UserError]:
        for name, training in self.train.items():
            if not training.checkpoint:
                yield from preflight.check_dataset(f"benchmark.train.{name}", name, training.path)
        for name, test in self.test.items():
            yield from preflight.check_dataset(f"benchmark.test.{name}", name, test.path, test.split, test.options)


class DomainSource(types.OpenBlock):
    """A dataset of a domain; the dataset checks further keys."""

    dataset: types.Text | None = None
    target: TargetName = None
    path: types.PathText
    splits: list[types.Text] | None = None
    where: dict[str, Any] | None = None
    fit_only: types.Switch = False


@options()
class DomainOptions:
    """A domain of `benchmark.domains`.

    Args:
        title: Its name in tables.
        sources: Blocks of datasets: `dataset`, `path`, `splits`, `where` (values of `meta` to keep), `fit_only` (never
            tested), and the dataset's options.
        texts: The origins of its knowledge.
        corpora: The origins of its labels.
        authors: The models that wrote its responses.
        history: `joined` puts the question or the previous turns before the knowledge, because the response is based
            on both; `apart` leaves them in the history, which a critic does not read.
        max_length_gap: For datasets of pairs: keeps pairs whose responses differ by at most so many words.
        extra: Shown in the tables, but not part of the mean and never used for training.
        max_rows: The largest number of tested rows of each half, in whole groups; `part=all` may have twice as many.
        test_accesses: How often its labels had been used before the halves were made.
        nli: Another NLI model for this domain, where the benchmark's was trained on it.
    """

    title: types.Text
    sources: Annotated[list[DomainSource], Field(min_length=1)]
    texts: list[types.Text]
    corpora: list[types.Text]
    authors: list[types.Text]
    history: Annotated[str, types.OneOf((APART, JOINED))] = APART
    max_length_gap: Annotated[types.NonNegativeInt | None, types.OrNull("for all pairs")] = None
    extra: types.Switch = False
    max_rows: blocks.NumRows = None
    test_accesses: types.NonNegativeInt = 0
    nli: types.PathText | None = None


class Domains(types.Block):
    """`task: domains` tests a detector on every domain."""

    name: types.Text
    task: Task
    path: types.PathText
    part: Annotated[str, types.OneOf((DEV, HELD, ALL))]
    only: Annotated[types.Texts | None, types.OrNull("for all")]
    encoder: blocks.Weights
    nli: blocks.Weights
    max_fit_rows: blocks.NumRows
    on_bad_row: blocks.OnBadRow
    domains: Annotated[dict[types.Text, DomainOptions], Field(min_length=1)]

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
                key, options = f"benchmark.domains.{name}", source.model_extra
                for found in preflight.check_dataset(key, source.dataset, path, given=options):
                    if found.problem == "no such file or folder":  # a corpus that is missing can be left out
                        hint = f"benchmark.only=[{others}] leaves {name} out"
                        yield UserError(found.problem, place=path, hint=hint)
                    else:
                        yield found


class Protocol(Benchmark):
    """The keys of every judging protocol."""

    task: Task


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


class System(with_options(SystemFiles, EngineOptions)):  # type: ignore[misc]
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
    histories: Annotated[list[str], types.SomeOf(RATE_HISTORIES)]
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


BLOCKS: Mapping[str, Any] = dict(
    zip(TASKS, (Responses, Transfer, Domains, Comparative, MetaJudging, Rates), strict=True)
)


def choose_benchmark(block: Any) -> Any:
    """Chooses the class that checks a block `benchmark`."""
    task = block.get("task") if isinstance(block, dict) else None
    return Detection if task is None else BLOCKS.get(str(task), Responses)  # which refuses an unknown one
