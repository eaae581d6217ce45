"""The blocks of the pipelines that measure and ask no model: `describe` and `estimate`."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import Field

from faithkit.errors import UserError
from faithkit.settings.types import Block, Count, Hint, OneOf, PathText, Switch, Text
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.blocks import Resamples
from faithkit_workflows.settings.data import OnBadRow, Split
from faithkit_workflows.settings.datasets import dataset_problems
from faithkit_workflows.settings.pipeline import Pipeline
from faithkit_workflows.settings.sharded import RAY, address_problems, is_sharded

RULES = RANDOM, UNCERTAINTY = ("random", "uncertainty")  # as in faithkit.statistics.label_sampling, without numpy


class Describe(Pipeline):
    """`pipeline=describe`."""

    asks: ClassVar[bool] = False
    dataset: Text
    path: PathText
    split: Split
    options: dict[str, Any]
    on_bad_row: OnBadRow
    facets: Annotated[list[Text] | None, Hint("use a list of names, [task,model], or null for all that we know")]
    plots: Switch
    num_resamples: Resamples

    def problems(self, settings: Any) -> Iterator[UserError]:
        one = {"dataset": self.dataset, "path": self.path, "split": self.split, **self.options}
        yield from dataset_problems("pipeline", one)
        if self.plots:
            yield from around.package_problems("pipeline.plots=true", "matplotlib", "plots")


class EstimateColumns(Block):
    """`pipeline.columns`: which column holds what."""

    id: Text | None
    label: Text
    score: Text | None
    group: Text | None


class LabelColumns(Block):
    """`pipeline.label_columns`: those of the labels."""

    id: Text
    label: Text


class Estimate(Pipeline):
    """`pipeline=estimate`."""

    asks: ClassVar[bool] = False
    predictions: PathText
    labels: PathText | None
    dataset: Text | None
    path: PathText | None
    split: Split
    options: dict[str, Any]
    columns: EstimateColumns
    label_columns: LabelColumns
    by: Text | None
    width: Annotated[float | None, Field(gt=0, lt=1), Hint("use a share between 0 and 1, 0.1 for ten points, or null")]
    label_next: Annotated[Count | None, Hint("use 1 or more responses, or null for none")]
    rule: Annotated[str, OneOf(RULES)]
    power: Annotated[float | None, Field(ge=0, le=2), Hint("use 0 (labels alone), 1, or null to tune it")]
    num_resamples: Resamples

    def problems(self, settings: Any) -> Iterator[UserError]:
        yield from around.file_problems("pipeline.labels", self.labels)
        if self.width is not None and self.labels is None:
            yield UserError("pipeline.width needs labels to plan by", hint="pipeline.labels=FILE")
        if is_sharded(self.predictions):
            yield from self._shard_problems(settings)
            return
        yield from around.file_problems("pipeline.predictions", self.predictions)
        if self.columns.id is None:
            problem = "pipeline.columns.id=null names the rows of shards, and this is a single file"
            yield UserError(problem, hint="pipeline.columns.id=NAME")
        if settings.engine.name == RAY:
            yield UserError("engine=ray reads scored shards", hint="pipeline.predictions=FOLDER; or leave engine out")
        if self.dataset is not None:
            one = {"dataset": self.dataset, "path": self.path, "split": self.split, **self.options}
            yield from dataset_problems("pipeline", one)
        if self.labels is None and self.label_next is None:
            hint = "pipeline.labels=FILE, or pipeline.label_next=50 to choose what to label first"
            yield UserError("there is nothing to do: neither labels nor label_next is given", hint=hint)

    def _shard_problems(self, settings: Any) -> Iterator[UserError]:
        """Names the settings that an estimate over scored shards does not take."""
        if self.dataset is not None:
            hint = "name columns of the shards: pipeline.by, pipeline.columns.group"
            yield UserError("pipeline.dataset is of a single file, and these are shards", hint=hint)
        if self.label_next is not None and self.rule != RANDOM:
            problem = f"pipeline.rule={self.rule} weighs all rows of a file at once, and these are shards"
            yield UserError(problem, hint="pipeline.rule=random")
        if settings.engine.name == RAY:
            yield from around.package_problems("engine=ray", "ray", "ray")
            yield from address_problems(settings.ray.address)
