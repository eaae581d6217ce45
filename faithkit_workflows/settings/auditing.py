"""The keys of `faithkit audit`."""

from collections.abc import Iterator
from typing import Any

from faithkit.detector import DETECTORS
from faithkit.errors import UserError
from faithkit.packages import missing
from faithkit.settings import types
from faithkit_workflows.settings import blocks, engines, preflight
from faithkit_workflows.settings.benchmark_blocks import Detection


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
        from pathlib import Path

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
