"""The keys of `faithkit reproduce`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from faithkit.errors import UserError
from faithkit.settings import types
from faithkit_workflows.reproduction.all_tables import ALL, NAMES
from faithkit_workflows.settings.blocks import OutputFile, Script
from faithkit_workflows.settings.preflight import suggest_path


def _check_corpora(key: str, path: str) -> Iterator[UserError]:
    if not Path(path).is_dir():
        yield UserError("no such folder", place=path, hint=suggest_path(key, Path(path), "the folder of the corpora"))


class ReproduceSettings(Script):
    """faithkit reproduce."""

    scale: dict[str, Any]
    table: Annotated[Any, types.SomeOf((*NAMES, ALL))]
    data_dir: Annotated[types.PathText | None, types.Preflight(_check_corpora)]
    out: types.PathText | None
    report: OutputFile
    hosted: types.Switch
    dry_run: types.Switch
    seed: types.Seed
