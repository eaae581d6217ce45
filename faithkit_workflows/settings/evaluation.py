"""The keys of evaluate.py."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from faithkit.detector import DETECTORS
from faithkit.errors import UserError
from faithkit.inference.text import OPENAI, Decoding
from faithkit.packages import missing
from faithkit.settings import types
from faithkit.settings.config_files import ANALYSIS
from faithkit.settings.types import Ineffective
from faithkit_workflows.settings import blocks, engines, preflight
from faithkit_workflows.settings.benchmark_blocks import (
    Comparative,
    Detection,
    Domains,
    MetaJudging,
    Protocol,
    Rates,
    Responses,
    Transfer,
    choose_benchmark,
)
from judge.options import ExaminerOptions, SelfCheckOptions

GENERATOR_KEYS = ("max_length", "decoding")


def _is(*kinds: type, names: tuple[str, ...] = ()) -> Any:
    """Makes a condition on the kind of benchmark, and on its name."""

    def applies(settings: Any) -> bool:
        block = settings.benchmark
        return any(isinstance(block, kind) for kind in kinds) and (not names or block.name in names)

    return applies


def _detects(settings: Any) -> bool:
    """Reports whether responses are judged one by one."""
    block = settings.benchmark
    return isinstance(block, Detection | Domains) and block.name != ANALYSIS


def _asks(settings: Any) -> bool:
    """Reports whether a language model judges."""
    judged = _detects(settings) or isinstance(settings.benchmark, Protocol)
    return judged and bool(settings.engine.name)


NAMED = "with benchmark={s.benchmark.name}"
NOTHING = "nothing to evaluate: neither checkpoint nor predictions is given"
NOTHING_HINT = "checkpoint=PATH of a run, an hf/ folder or a hub name; predictions=FILE; or engine.model=NAME"
ENGINE_HINT = "engine=transformers engine.model=NAME"
FIT_HINT = "benchmark.fit_on=[{{dataset: NAME, path: PATH, split: validation}}]"


class EvaluateSettings(blocks.ExtensibleScript):
    """evaluate.py."""

    scale: dict[str, Any]
    benchmark: Annotated[Any, types.Variants(choose_benchmark)]
    decoding: Decoding
    logger: blocks.Loggers = Field(default_factory=blocks.LoggerBlocks)
    trainer: blocks.Trainer | None = None
    checkpoint: types.PathText | None
    predictions: types.PathText | None
    against: types.PathText | None
    html: types.PathText | None
    batch_tokens: blocks.BatchTokens
    max_windows: blocks.MaxWindows = None
    labels: blocks.ClassLabels = None
    engine: engines.Engine
    judge: engines.Ask
    cascade: engines.Cascade
    selfcheck: SelfCheckOptions
    examiner: ExaminerOptions
    retrieval: engines.RetrievalOptions
    precision: blocks.DetectorPrecision
    max_length: blocks.Length
    save_every_num_rows: types.Count = 2048
    save_texts: types.Switch = True
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
        *types.where(
            lambda s: isinstance(s.benchmark, Protocol),
            types.Conflict(
                lambda s: (
                    not s.engine.name
                    and not (isinstance(s.benchmark, Comparative) and s.predictions)
                    and not (isinstance(s.benchmark, MetaJudging) and s.benchmark.labels)
                    and not (isinstance(s.benchmark, Rates) and s.checkpoint)
                ),
                "nothing judges: no language model is named",
                "engine=NAME engine.model=NAME; with systems also checkpoint=PATH",
            ),
        ),
        *types.where(
            _detects,
            types.Conflict(
                lambda s: (
                    not (s.checkpoint or s.predictions or s.engine.name or s.cascade.is_on)
                    and not (s.selfcheck.measure or s.examiner.turns)
                ),
                NOTHING,
                NOTHING_HINT,
            ),
            types.excludes("selfcheck.measure", "examiner.turns"),
            types.excludes("selfcheck.measure", "checkpoint"),
            types.excludes("examiner.turns", "checkpoint"),
            types.requires("examiner.turns", "engine", ENGINE_HINT),
            types.Conflict(
                lambda s: s.selfcheck.measure and not s.engine.name and s.selfcheck.asks_model,
                "selfcheck.measure={s.selfcheck.measure} asks a language model, and none is named",
                f"{ENGINE_HINT}, or selfcheck.samples=others",
            ),
            types.requires("selfcheck.measure=bert_score", "selfcheck.encoder=minilm"),
            types.requires(
                "selfcheck.measure=nli",
                "selfcheck.nli",
                "selfcheck.nli=RUN of faithkit train model=critic data=snli, or an NLI model's name",
            ),
        ),
        *types.where(
            _asks,
            types.requires(
                "engine",
                "engine.model=NAME",
                "engine.model=NAME: a folder, a local name or a hub name; of a server the model's name there",
            ),
            types.excludes("engine", "predictions"),
            types.Conflict(
                lambda s: s.checkpoint and not s.cascade.is_on,
                "engine={s.engine.name} and checkpoint exclude each other",
                "leave one out, or make them a cascade: cascade.budget=0.2",
            ),
        ),
        *types.where(
            lambda s: _detects(s) and s.cascade.is_on,
            types.Conflict(
                lambda s: not s.cascade.band and not getattr(s.benchmark, "fit_on", None),
                "a cascade's band is chosen on rows that are not tested, and none are named",
                FIT_HINT,
            ),
            types.Conflict(
                lambda s: (
                    s.cascade.band and s.cascade.max_budget is not None and not getattr(s.benchmark, "fit_on", None)
                ),
                "cascade.max_budget needs rows to choose bands on",
                FIT_HINT,
            ),
            types.Conflict(
                lambda s: not s.engine.name or not s.checkpoint,
                "a cascade needs a checkpoint and a language model",
                "checkpoint=CRITIC engine=transformers engine.model=JUDGE",
            ),
        ),
        types.Conflict(
            lambda s: (
                isinstance(s.benchmark, Responses) and not (s.checkpoint or s.predictions or s.benchmark.datasets)
            ),
            NOTHING,
            NOTHING_HINT,
        ),
    )
    ineffective = (
        Ineffective(("engine", "judge"), "without a language model as judge", lambda s: not _asks(s)),
        Ineffective(engines.LOCAL_KEYS, "with engine=openai", lambda s: _asks(s) and s.engine.name == OPENAI),
        Ineffective(engines.SERVER_KEYS, "without engine=openai", lambda s: _asks(s) and s.engine.name != OPENAI),
        Ineffective(("against", "predictions", "max_length"), NAMED, _is(Rates)),
        types.no_effect("decoding.strategy", "decoding.temperature", where="benchmark.temperatures"),
        Ineffective(
            (
                *("against", "checkpoint", "decoding", "max_length", "batch_tokens", "max_windows", "labels"),
                *("precision", "judge.ask", "judge.num_samples", "judge.temperature"),
            ),
            NAMED,
            _is(Comparative, MetaJudging),
        ),
        Ineffective(("predictions",), NAMED, _is(MetaJudging)),
        Ineffective(("max_windows",), NAMED, _is(Responses)),
        Ineffective(("trainer",), NAMED, lambda s: not isinstance(s.benchmark, Transfer)),
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
        if isinstance(block, Transfer):
            return
        if getattr(block, "fit_on", None):
            yield from missing("benchmark.fit_on")
        if isinstance(block, Domains):
            yield from missing("benchmark=domains")
        if isinstance(block, Rates) or block.name == ANALYSIS:
            yield from missing("a benchmark of a paper", f"benchmark={block.name}")
        yield from preflight.check_file("predictions", self.predictions)
        yield from preflight.check_file("against", self.against)
        yield from preflight.check_output_file("html", self.html)
        if isinstance(block, Responses):
            yield from missing("a benchmark of responses")
            yield from engines.check_checkpoint("checkpoint", self.checkpoint, "generator")
        elif _detects(self) or (isinstance(block, Rates) and not self.engine.name):
            yield from engines.check_checkpoint("checkpoint", self.checkpoint, *DETECTORS)
        if _asks(self):
            yield from engines.check_model("engine.model", self.engine.name, self.engine.model)
        if _detects(self):
            if _asks(self):
                if not (self.selfcheck.measure or self.examiner.turns):
                    yield from preflight.check_prompts("judge", self.judge.ask, self.judge.prompts)
                examples = self.judge.examples
                yield from preflight.check_file("judge.examples", examples if isinstance(examples, str) else None)
            if self.selfcheck.measure:
                yield from preflight.check_weights("selfcheck.nli", self.selfcheck.nli)
                yield from preflight.check_weights("selfcheck.encoder", self.selfcheck.encoder)
            if self.engine.name != OPENAI:
                yield from preflight.check_weights("examiner.examinee", self.examiner.examinee)
        if isinstance(block, Domains) or block.target:
            return
        datasets = getattr(block, "datasets", None) or {}
        for name, one in datasets.items():
            # Of several systems on one dataset, each has another name.
            dataset = (one.model_extra or {}).get("dataset", name)
            split = one.split or block.split
            yield from preflight.check_dataset(f"benchmark.datasets.{name}", dataset, one.path, split)
        if not datasets and (block.path is not None or isinstance(block, Detection)):
            dataset = block.dataset or block.name
            yield from preflight.check_dataset("benchmark", dataset, block.path, block.split, block.options)
