"""The keys of report.py: what `check_settings` is given."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from faithkit.errors import UserError
from faithkit.settings.types import Count, Hint, PathText
from workflows.settings import surroundings as around
from workflows.settings.blocks import Resamples
from workflows.settings.common import Common

Patterns = Annotated[
    PathText | Annotated[list[PathText], Field(min_length=1)] | None,
    Hint("use a folder, a pattern or a list of them: runs='runs/*', runs=[runs/a,runs/b]"),
]


class ReportSettings(Common):
    """report.py."""

    runs: Patterns
    html: PathText | None
    against: PathText | None
    num_compared: Count
    max_rows: Count
    num_resamples: Resamples

    def surroundings(self) -> Iterator[UserError]:
        yield from around.output_problems("html", self.html)
        if self.runs is not None:
            yield from around.package_problems("report.py", "statsmodels", "report")
            if self.html is not None:
                yield from around.package_problems("html", "matplotlib", "report")
