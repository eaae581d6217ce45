"""The keys of report.py: what `check_settings` is given."""

import os
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from faithkit.errors import UserError
from faithkit.settings.types import Count, Hint, PathText, Text
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.blocks import Resamples
from faithkit_workflows.settings.common import Common

Patterns = Annotated[
    PathText | Annotated[list[PathText], Field(min_length=1)] | None,
    Hint("use a folder, a pattern or a list of them: runs='runs/*', runs=[runs/a,runs/b]"),
]


class ReportSettings(Common):
    """report.py."""

    runs: Patterns
    html: PathText | None
    against: PathText | None
    wandb: Text | None
    num_compared: Count
    max_rows: Count
    num_resamples: Resamples

    def surroundings(self) -> Iterator[UserError]:
        yield from around.output_problems("html", self.html)
        yield from self._wandb_problems()
        if self.runs is not None:
            yield from around.package_problems("report.py", "statsmodels", "report")
            if self.html is not None:
                yield from around.package_problems("html", "matplotlib", "report")

    def _wandb_problems(self) -> Iterator[UserError]:
        if self.wandb is None:
            return
        if self.runs is None:
            yield UserError("wandb: no runs are named that a report could compare", hint="add runs='runs/*'")
        yield from around.package_problems("wandb", "wandb_workspaces", "wandb-report")
        if os.environ.get("WANDB_MODE", "online") != "online":
            yield UserError("wandb: WANDB_MODE keeps this command off the network", hint="unset WANDB_MODE")
        elif not around.has_wandb_account():
            problem = "wandb has no account: WANDB_API_KEY is not set, and `wandb login` was never run"
            yield UserError(problem, hint="wandb login; or leave wandb out: tables and html= need no account")
