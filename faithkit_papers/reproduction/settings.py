"""The keys of `faithkit reproduce`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from faithkit.errors import UserError
from faithkit.packages import missing
from faithkit.settings import types
from faithkit_papers.reproduction.table_files import ALL, LIST, list_names
from faithkit_papers.reproduction.table_steps import check_prompts
from faithkit_workflows.settings import blocks
from faithkit_workflows.settings.preflight import suggest_path


def _check_corpora(key: str, path: str) -> Iterator[UserError]:
    if not Path(path).is_dir():
        yield UserError("no such folder", place=path, hint=suggest_path(key, Path(path), "the folder of the corpora"))


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


class ReproduceEngine(types.Block):
    """The block `engine` of faithkit reproduce."""

    num_gpus: Annotated[types.Count | None, types.OrNull("for as many as the model's size needs")]
    memory_fraction: types.PositiveShare | None
    batch_size: types.Count | None


class ReproduceSettings(blocks.Script):
    """faithkit reproduce."""

    scale: dict[str, Any]
    trainer: blocks.Trainer | None = None
    engine: ReproduceEngine
    table: Annotated[Any, types.SomeOf((*list_names(), ALL, LIST)), BeforeValidator(_as_list)]
    data_dir: Annotated[types.PathText | None, types.Preflight(_check_corpora)]
    prompts: Annotated[types.PathText | None, types.Preflight(check_prompts)]
    out: types.PathText | None
    report: blocks.OutputFile
    hosted: types.Switch
    dry_run: types.Switch
    seed: types.Seed

    def preflight(self, script: Any) -> Iterator[UserError]:
        if not self.dry_run and LIST not in self.table:
            yield from missing("faithkit train", "table")
        if not self.dry_run and any(name == ALL or "figure" in name for name in self.table):
            yield from missing("plots", "table")
