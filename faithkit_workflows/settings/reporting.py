"""The keys of report.py, export.py, `faithkit audit`, `faithkit compare` and `faithkit serve`."""

import ipaddress
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from faithkit.detector import CRITIC, DETECTORS, GENERATOR, JUDGE, TAGGER
from faithkit.errors import UserError
from faithkit.languages import WARN
from faithkit.packages import missing
from faithkit.settings import types
from faithkit.weights.publish import REPOSITORY
from faithkit_workflows.settings import blocks, engines, preflight
from faithkit_workflows.settings.benchmark_blocks import Detection
from faithkit_workflows.settings.prediction import Columns
from faithkit_workflows.settings.preflight import read_kind

PLAIN, GRAPH, INT8_GRAPH, ONE_LOGIT = FORMATS = ("transformers", "onnx", "onnx_int8", "one_logit")


class ReportSettings(blocks.Script):
    """report.py."""

    runs: Annotated[
        types.PathText | types.Texts | None,
        types.Hint("use a folder, a pattern or a list of them: runs='runs/*', runs=[runs/a,runs/b]"),
    ]
    html: blocks.OutputFile
    against: types.PathText | None
    num_compared: types.Count
    max_rows: types.Count
    num_resamples: blocks.Resamples

    def preflight(self, script: Any) -> Iterator[UserError]:
        if self.runs is not None and self.html is not None:
            yield from missing("plots", "html")


class ExportSettings(blocks.Script):
    """export.py."""

    checkpoint: Annotated[types.PathText, blocks.checkpoint_of(CRITIC, TAGGER, GENERATOR, JUDGE)]
    output_dir: blocks.OutputFolder
    format: Annotated[str, types.OneOf(FORMATS)]
    push_to: Annotated[
        Annotated[str, Field(pattern=f"^{REPOSITORY}$", max_length=96)] | None, types.Hint("use OWNER/NAME, or null")
    ]
    private: types.Switch
    dry_run: types.Switch

    conflicts = (
        types.Conflict(
            lambda s: s.output_dir is None and s.push_to is None and s.format == PLAIN,
            "output_dir is not set",
            "set output_dir=DIR, or push_to=OWNER/NAME, or format=onnx",
        ),
        types.Conflict(
            lambda s: s.format == ONE_LOGIT and (s.output_dir is None or s.push_to is not None),
            "format=one_logit writes a folder for servers, and pushes nothing",
            "set output_dir=DIR, and leave push_to out",
        ),
        types.requires("dry_run", "push_to=OWNER/NAME"),
    )
    ineffective = (types.no_effect("private", without="push_to"),)

    def preflight(self, script: Any) -> Iterator[UserError]:
        if self.format != PLAIN:
            try:
                kind = read_kind(self.checkpoint)
            except UserError:  # reported with the checkpoint
                kind = None
            if kind in (GENERATOR, JUDGE):
                problem = f"format={self.format} is for encoders, and this is a {kind}"
                yield UserError(problem, place=self.checkpoint, hint="leave format out")
            if self.format != ONE_LOGIT:
                yield from missing("format=onnx", f"format={self.format}")
        if self.push_to is not None and not self.dry_run:
            from huggingface_hub import get_token

            if not get_token():  # of HF_TOKEN or of a login
                problem = "push_to needs a token of the hub: HF_TOKEN is not set, and `hf auth login` was never run"
                yield UserError(problem, hint="dry_run=true needs none")


class AuditSettings(blocks.ExtensibleScript):
    """faithkit audit."""

    scale: dict[str, Any]
    benchmark: Detection | None = None
    target: types.Text
    documents: blocks.Folder
    rows: blocks.InputFile
    threshold: types.Share | None
    labels: blocks.ClassLabels
    precision: blocks.DetectorPrecision
    server_model: types.Text | None
    api_key_variable: types.Text
    num_cases: types.Count
    num_variants: types.Count
    num_rows: types.Count
    long_words: types.Count
    batch_size: types.Count
    row_seconds: types.Seconds
    max_seconds: types.Seconds

    conflicts = (types.excludes("rows", "benchmark", "leave one out"),)

    def preflight(self, script: Any) -> Iterator[UserError]:
        if "://" not in self.target and ":" not in self.target:
            yield from engines.check_checkpoint("target", self.target, *DETECTORS)
        if self.rows is not None or self.benchmark is not None:
            yield from missing("accuracy beside simple baselines")
        if self.documents is not None and not Path(self.documents).expanduser().exists():
            hint = preflight.suggest_path("documents", Path(self.documents), "a folder of texts")
            yield UserError("documents: no such file or folder", place=self.documents, hint=hint)
        if self.benchmark is not None:
            block = self.benchmark
            yield from preflight.check_dataset(
                "benchmark", block.dataset or block.name, block.path, block.split, block.options
            )


class CompareSettings(blocks.ExtensibleScript):
    """faithkit compare."""

    path: types.PathText
    models: Annotated[types.Texts, types.Hint("name two or more in a list: models=[default,runs/...]")]
    columns: Columns
    encoding: types.Text | None
    num_rows: blocks.NumRows
    on_bad_row: blocks.OnBadRow
    num_to_label: types.Count
    precision: blocks.DetectorPrecision
    api_key_variable: types.Text
    batch_size: types.Count
    row_seconds: types.Seconds
    max_seconds: types.Seconds

    conflicts = (
        types.Conflict(
            lambda s: len(s.models) == 1,
            "models names one model, and a comparison needs two",
            "name another: models=[{s.models[0]},OTHER]; `faithkit score` judges with one, `faithkit audit` tests it",
        ),
        types.Conflict(
            lambda s: len({_same(name) for name in s.models}) < len(s.models),
            "models names a model twice",
            "leave one of them out; another threshold or precision is another run",
        ),
    )

    def preflight(self, script: Any) -> Iterator[UserError]:
        if not Path(self.path).expanduser().is_dir():
            yield from preflight.check_file("path", self.path)
        if self.on_bad_row == "stop":  # else a first row without them can be one to skip
            yield from preflight.check_columns(self.path, self.columns.model_dump(), None, self.encoding)
        for name in self.models:
            if "://" not in name and ":" not in name:
                yield from engines.check_checkpoint("models", name, *DETECTORS)


def _same(name: str) -> str:
    """Returns the same text for different names of a folder or of an address."""
    path = Path(name).expanduser()
    return str(path.resolve()) if path.exists() else name.rstrip("/")


def is_loopback(host: str) -> bool:
    """Reports whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ServeSettings(blocks.Script):
    """faithkit serve."""

    seed: types.Seed
    checkpoint: types.Text
    models: Annotated[dict[str, types.Text] | None, types.Hint("use models={NAME: CHECKPOINT}")] = None
    threshold: types.Share | None = None
    precision: blocks.DetectorPrecision
    labels: blocks.ClassLabels = None
    on_language: blocks.OnLanguage = WARN
    host: types.Text
    port: Annotated[int, Field(ge=0, le=65535), types.Hint("use a port from 1 to 65535, or 0 for a free one")]
    workers: types.Count | None
    batch_wait_ms: Annotated[float, Field(ge=0, le=1000), types.Hint("use milliseconds from 0 to 1000")]
    batch_characters: types.Count
    max_body_bytes: types.Count
    max_rows: types.Count
    max_row_characters: types.Count
    max_response_characters: types.Count
    max_queue_rows: types.Count
    max_requests: types.Count
    body_seconds: types.Seconds
    request_seconds: types.Seconds
    drain_seconds: types.Seconds
    keys_path: blocks.InputFile
    allow_anonymous: types.Switch
    rows_per_minute: types.Count | None
    cors_origins: list[types.Text]
    allowed_hosts: list[types.Text]
    log_texts: types.Switch
    jobs_dir: blocks.Folder
    job_hosts: list[types.Text]
    max_job_bytes: types.Count

    conflicts = (
        types.Conflict(
            lambda s: not is_loopback(s.host) and s.keys_path is None and not s.allow_anonymous,
            "host={s.host} can be reached from other machines, and no keys are required",
            "python -m faithkit_workflows.serve.keys keys.txt NAME writes a key; then keys_path=keys.txt "
            "(or allow_anonymous=true)",
        ),
        types.Conflict(lambda s: s.models == {}, "models is empty", "models={NAME: CHECKPOINT}, or leave it out"),
        types.Conflict(
            lambda s: s.job_hosts and s.jobs_dir is None,
            "job_hosts is set and jobs are off",
            "set jobs_dir=FOLDER, where jobs keep their files",
        ),
    )

    def checkpoints(self) -> Mapping[str, str]:
        """Returns the checkpoint of each served name."""
        return self.models or {Path(self.checkpoint).name or self.checkpoint: self.checkpoint}

    def preflight(self, script: Any) -> Iterator[UserError]:
        for name, checkpoint in self.checkpoints().items():
            key = f"models.{name}" if self.models else "checkpoint"
            yield from engines.check_checkpoint(key, checkpoint, *DETECTORS)
