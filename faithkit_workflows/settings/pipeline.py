"""The block `pipeline` of construct.py: the keys that each of its pipelines has."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import Field

from faithkit.errors import UserError
from faithkit.settings.types import Block, Hint, PartialShare, PathText, Text
from faithkit_workflows.settings import datasets
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.data import EmbeddedRows, OnBadRow, Split

NearDuplicates = Annotated[
    Annotated[float, Field(ge=0.1, le=1)] | None, Hint("use a share from 0.1 to 1, or null for equal texts alone")
]


class Pipeline(Block):
    """The keys of every pipeline.

    Attributes:
        asks: It asks language models.
    """

    asks: ClassVar[bool] = True
    name: Text

    def problems(self, settings: Any) -> Iterator[UserError]:
        """Yields what is missing outside of the command line."""
        yield from ()


class Dialogues(Pipeline):
    """A pipeline over the turns of a dataset of dialogues."""

    dataset: Text
    path: PathText
    embedded_rows: EmbeddedRows
    split: Split
    options: dict[str, Any]
    on_bad_row: OnBadRow
    test_fraction: PartialShare
    near_duplicates: NearDuplicates

    def problems(self, settings: Any) -> Iterator[UserError]:
        one = {"dataset": self.dataset, "path": self.path, "split": self.split, **self.options}
        yield from datasets.dataset_problems("pipeline", one)
        yield from near_duplicate_problems(self.near_duplicates)


def near_duplicate_problems(near: float | None) -> Iterator[UserError]:
    """The package that finds near duplicates is not installed: told now, and not behind the last request."""
    if near is not None:
        yield from around.package_problems("pipeline.near_duplicates (all but null)", "datasketch", "construction")
