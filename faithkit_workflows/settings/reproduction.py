"""The keys of `faithkit reproduce`: what `check_settings` is given."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from faithkit.errors import UserError
from faithkit.settings.types import PathText, Seed, SomeOf, Switch
from faithkit_workflows.reproduction.registry import ALL, NAMES
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.common import Common
from faithkit_workflows.settings.preflight import near_hint


class ReproduceSettings(Common):
    """faithkit reproduce."""

    scale: dict[str, Any]
    table: Annotated[Any, SomeOf((*NAMES, ALL))]
    data_dir: PathText | None
    out: PathText | None
    report: PathText | None
    hosted: Switch
    dry_run: Switch
    seed: Seed

    def surroundings(self) -> Iterator[UserError]:
        if self.data_dir is not None and not Path(self.data_dir).is_dir():
            hint = near_hint("data_dir", Path(self.data_dir), "the folder of the corpora")
            yield UserError("no such folder", place=self.data_dir, hint=hint)
        yield from around.output_problems("report", self.report)
