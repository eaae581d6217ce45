"""The block `pipeline` of annotate and agreement, which ask no language model."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar

from pydantic import Field

from faithkit.errors import UserError
from faithkit.settings.types import Count, Hint, OneOf, PathText, Text
from faithkit_workflows.settings import datasets
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.data import OnBadRow, Split
from faithkit_workflows.settings.pipeline import Pipeline

SCHEMES = ("faithdial", "ragtruth", "diahalu", "halludial", "likert")
EXTRA = "pip install 'faithkit[construction]'"
Systems = Annotated[
    Annotated[dict[Text, PathText], Field(min_length=1)] | None, Hint("use {NAME: FILE, NAME: FILE}, or null")
]


class Annotate(Pipeline):
    """`pipeline=annotate`."""

    asks: ClassVar[bool] = False
    scheme: Annotated[str, OneOf(SCHEMES)]
    dataset: Text
    path: PathText
    split: Split
    options: dict[str, Any]
    on_bad_row: OnBadRow
    sample: Count | None
    suggest: Annotated[str, OneOf(("none", "gold", "predictions"))]
    predictions: PathText | None
    systems: Systems
    export: PathText | None
    on_bad_annotation: Annotated[str, OneOf(("stop", "skip"))]
    adjudicate: Annotated[str, OneOf(("majority", "severe", "expert", "hand"))]
    expert: Text | None
    decisions: PathText | None
    min_annotators: Count

    def problems(self, settings: Any) -> Iterator[UserError]:
        one = {"dataset": self.dataset, "path": self.path, "split": self.split, **self.options}
        yield from datasets.dataset_problems("pipeline", one)
        for key in ("predictions", "export", "decisions"):
            yield from around.file_problems(f"pipeline.{key}", getattr(self, key))
        for name, path in (self.systems or {}).items():
            yield from around.file_problems(f"pipeline.systems.{name}", path)
        if self.suggest == "predictions" and self.predictions is None:
            yield UserError("pipeline.suggest=predictions, and there are none", hint="pipeline.predictions=FILE")
        if self.adjudicate == "expert" and self.expert is None:
            yield UserError(
                "pipeline.adjudicate=expert, and no expert is named", hint="pipeline.expert=NAME, or a file"
            )


class Agreement(Pipeline):
    """`pipeline=agreement`."""

    asks: ClassVar[bool] = False
    annotations: PathText
    title: Annotated[str, Field(pattern="^[^/]+$")] | None
    num_resamples: Count

    def problems(self, settings: Any) -> Iterator[UserError]:
        from faithkit_workflows.pipelines.agreement import annotations_file

        yield from around.file_problems("pipeline.annotations", str(annotations_file(self.annotations)))
        for package in ("krippendorff", "statsmodels"):
            if find_spec(package) is None:
                yield UserError(f"pipeline=agreement needs the package {package}", hint=EXTRA)
