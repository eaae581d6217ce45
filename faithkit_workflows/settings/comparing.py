"""The keys of `faithkit compare`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from faithkit.detector import DETECTORS
from faithkit.errors import UserError
from faithkit.settings import types
from faithkit_workflows.settings import blocks, engines, preflight
from faithkit_workflows.settings.prediction import Columns


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
