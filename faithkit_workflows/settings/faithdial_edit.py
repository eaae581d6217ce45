"""The block `pipeline` of `pipeline=faithdial_edit`."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from faithkit.errors import UserError
from faithkit.settings.types import Count, Hint, NonNegativeInt, OneOf, PathText, Positive, PositiveShare, Text
from faithkit_workflows.settings import datasets
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.data import EmbeddedRows, OnBadRow, Split
from faithkit_workflows.settings.pipeline import Pipeline


class FaithdialEdit(Pipeline):
    """`pipeline=faithdial_edit`."""

    dataset: Text
    path: PathText
    split: Split
    options: dict[str, Any]
    embedded_rows: EmbeddedRows
    on_bad_row: OnBadRow
    which: Annotated[str, OneOf(("tags", "detector", "all"))]
    detector: PathText | None
    candidates: Annotated[int, Field(ge=1, le=100), Hint("use a whole number from 1 to 100")]
    temperature: Positive
    top_p: PositiveShare
    max_words: Count
    max_new_tokens: Count
    max_copied_words: NonNegativeInt
    language: Annotated[Any, OneOf(("en", None))]

    def problems(self, settings: Any) -> Iterator[UserError]:
        one = {"dataset": self.dataset, "path": self.path, "split": self.split, **self.options}
        yield from datasets.dataset_problems("pipeline", one)
        if self.which == "detector" and self.detector is None:
            yield UserError("pipeline.which=detector names no detector", hint="pipeline.detector=runs/...")
        yield from around.checkpoint_problems("pipeline.detector", self.detector, "critic", "tagger", "judge")
