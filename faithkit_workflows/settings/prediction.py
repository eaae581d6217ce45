"""The keys of scripts that apply a model to new inputs: generate.py, `faithkit chat`, `faithkit score`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from data_modules.reading.conversations import EVIDENCE
from data_modules.reading.files import HUB
from faithkit.detector import DETECTORS
from faithkit.errors import UserError
from faithkit.inference.text import NUCLEUS, VLLM, Decoding
from faithkit.languages import WARN
from faithkit.packages import missing
from faithkit.settings import types
from faithkit.settings.config_files import EMBEDDED
from faithkit.settings.types import Ineffective
from faithkit_workflows.settings import blocks, engines, preflight

# Shards have a folder of results in the place of a run's.
SHARDS = (
    types.requires("engine=ray", "out=FOLDER", "out=FOLDER, which all nodes see"),
    types.excludes("engine=ray", "run_dir", "use out=FOLDER, without run_dir"),
    types.excludes("engine=ray", "resume", "use out=FOLDER, without resume: the same command goes on"),
    types.excludes("engine=ray", "num_rows", "leave num_rows out"),
)
NEEDS_DETECTOR = types.Conflict(
    lambda s: s.decoding.num_samples > 1 and not s.detector,
    "best_of={s.decoding.num_samples} needs a judge",
    "detector=PATH of a critic or a tagger",
)


def _table(settings: Any) -> dict[str, Any]:
    return engines.single_table(settings.data.model_dump(by_alias=True))


class GenerateSettings(blocks.ExtensibleScript):
    """generate.py."""

    scale: dict[str, Any]
    best_of: blocks.BestOf
    data: blocks.Data
    decoding: Decoding
    checkpoint: blocks.RequiredGenerator
    engine: engines.GeneratorEngine
    precision: Annotated[str, types.OneOf(types.PRECISIONS)]
    batch_size: Annotated[types.Count | None, types.OrNull("for what suits the device")]
    max_length: blocks.Length
    num_rows: blocks.NumRows
    control_tokens: blocks.Names
    resample: types.Count | None
    entailment: blocks.Weights
    detector: blocks.DetectorPath
    save_every_num_rows: types.Count
    save_texts: types.Switch = True
    num_examples: types.NonNegativeInt
    verbose: types.Switch = False
    out: blocks.Folder = None
    ray: engines.AnswerRayOptions

    conflicts = (
        NEEDS_DETECTOR,
        types.excludes("resample", "detector", "leave one out; evaluate.py judges what was resampled"),
        types.Conflict(
            lambda s: s.resample is not None and s.decoding.strategy != NUCLEUS,
            "{s.decoding.strategy} decoding writes the same again",
            "use decoding=nucleus",
        ),
        *SHARDS,
        types.excludes("engine=ray", "resample", "leave engine=ray out, or use best_of=8 detector=PATH"),
        *types.where(
            lambda s: s.engine.name == engines.RAY,
            types.Conflict(
                lambda s: not _table(s),
                "engine=ray answers tables of your own, and data is {s.data.name}",
                "data=pairs data.path=FOLDER",
            ),
            types.Conflict(
                lambda s: _table(s) and _table(s)["path"] in (None, EMBEDDED, HUB),
                "engine=ray without data.path",
                "data.path=FOLDER, 'FOLDER/*.parquet' or an address",
            ),
        ),
        *types.where(
            lambda s: s.engine.name == engines.RAY and (s.ray.gpus or 1) > 1,
            types.Conflict(
                lambda s: s.ray.gpus != int(s.ray.gpus),
                "ray.gpus={s.ray.gpus:g} is not a whole number of GPUs",
                "use a whole number, or a share of one GPU",
            ),
            types.Conflict(
                lambda s: s.ray.gpus == int(s.ray.gpus) and s.ray.engine != VLLM,
                "ray.gpus={s.ray.gpus:g} and ray.engine={s.ray.engine}, which runs on one",
                "ray.gpus=1, or ray.engine=vllm, where GPUs share a model",
            ),
        ),
    )
    ineffective = (
        Ineffective(
            (
                *("data.validation_fraction", "data.test_fraction", "data.fold", "data.num_folds", "data.exclude"),
                *("data.negatives", "data.batch_size", "data.max_tokens", "data.eval_max_tokens", "data.num_workers"),
                *("data.streaming", "data.num_readers", "data.num_buffer_rows", "data.first"),
            ),
            "in generate: nothing is trained",
        ),
        types.no_effect("entailment", without="resample"),
        Ineffective(
            ("data.split", "data.num_rows", "data.on_bad_row", "data.labels", "save_texts", "num_examples", "verbose"),
            "with engine=ray, which puts bad rows aside and keeps no run's folder",
            lambda s: s.engine.name == engines.RAY,
        ),
        types.no_effect("out", "ray", without="engine=ray"),
    )

    def preflight(self, script: Any) -> Iterator[UserError]:
        if self.engine.name == engines.RAY:
            from data_modules.datasets.pairs import Pairs

            table = _table(self)
            try:
                Pairs(path=table["path"], columns=table.get("columns") or {}, encoding=table.get("encoding"))
            except UserError as error:
                yield error
            if self.ray.engine == VLLM:
                yield from missing("engine=vllm", "ray.engine=vllm")
            yield from engines.check_shards(self, table["path"])
        else:
            yield from preflight.check_parts(self.data)
        yield from engines.check_engine(self.engine.name)


class ChatSettings(blocks.Script):
    """faithkit chat."""

    seed: types.Seed
    decoding: Decoding
    checkpoint: blocks.RequiredGenerator
    detector: blocks.DetectorPath
    precision: Annotated[str, types.OneOf(types.PRECISIONS)]
    max_length: blocks.Length
    control_tokens: blocks.Names
    best_of: blocks.BestOf

    conflicts = (NEEDS_DETECTOR,)


class Columns(types.Block):
    """`columns` of score: the names of the columns that it reads."""

    knowledge: types.Text | None
    response: types.Text | None
    label: types.Text | None = None
    history: types.Text | None
    id: types.Text | None
    group: types.Text | None


class ScoreSettings(blocks.RunScript):
    """faithkit score."""

    path: types.PathText
    checkpoint: Annotated[types.PathText, blocks.checkpoint_of(*DETECTORS)]
    columns: Columns
    encoding: types.Text | None = None
    evidence: Annotated[types.Texts, types.SomeOf(EVIDENCE)]
    by: Annotated[types.Text | types.Texts | None, types.Hint("use by=COLUMN, or by=[ONE,OTHER]")]
    output: blocks.OutputFile
    escape_formulas: types.Switch = False
    num_rows: blocks.NumRows
    on_bad_row: blocks.OnBadRow
    labels: blocks.ClassLabels = None
    precision: blocks.DetectorPrecision
    batch_tokens: blocks.BatchTokens
    max_windows: blocks.MaxWindows = None
    save_every_num_rows: types.Count
    save_texts: types.Switch = True
    threshold: types.Share | None = None
    aim: Annotated[str | None, types.OneOf(("balanced", "recall", "precision", None))] = None
    on_language: blocks.OnLanguage = WARN
    abstain_at: types.Share | None = None
    fail_over: types.Share | None = None
    num_resamples: blocks.Resamples
    engine: engines.ScoreEngine = Field(default_factory=engines.ScoreEngine)
    out: blocks.Folder = None
    ray: engines.RayOptions

    conflicts = (
        *SHARDS,
        types.excludes("threshold", "aim", "leave one of them out"),
        types.excludes("engine=ray", "output", "use out=FOLDER"),
        types.excludes("engine=ray", "fail_over", "score the table without engine=ray"),
    )
    ineffective = (
        Ineffective(
            ("on_bad_row", "save_texts", "on_language"),
            "with engine=ray, which puts bad rows aside and keeps no predictions file",
            lambda s: s.engine.name == engines.RAY,
        ),
        types.no_effect("out", "ray", without="engine=ray"),
    )

    def preflight(self, script: Any) -> Iterator[UserError]:
        if self.engine.name == engines.RAY:
            yield from engines.check_shards(self, self.path)
        else:
            if not Path(self.path).expanduser().is_dir():
                yield from preflight.check_file("path", self.path)
            if self.on_bad_row == "stop":  # else a first row without them can be one to skip
                columns = self.columns.model_dump()
                yield from preflight.check_columns(self.path, columns, self.by, self.encoding)
            yield from preflight.check_output_table("output", self.output, self.path)
