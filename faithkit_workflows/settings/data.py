"""The block `data`: where examples come from, how they are divided, and how they become batches."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from data_modules.negatives.kinds import KINDS
from data_modules.reading.dataset import SPLITS
from data_modules.shards.lanes import NUM_BUFFER_ROWS, NUM_READERS
from faithkit.errors import UserError
from faithkit.settings.check import join_problems
from faithkit.settings.types import (
    Block,
    Count,
    Hint,
    NonNegativeInt,
    OneOf,
    OpenBlock,
    PartialShare,
    PathText,
    Positive,
    Seed,
    Switch,
    Text,
)

__all__ = ["Data", "EmbeddedRows", "FittingSet", "NumRows", "OnBadRow", "Parts"]

NumRows = Annotated[Count | None, Hint("use a whole number of 1 or more, or null for all")]
OnBadRow = Annotated[str, OneOf(("stop", "skip"))]
BATCH_SIZE = Hint("use 1 or more examples, or null beside data.max_tokens")
Split = Annotated[Text | None, Hint("use the name of a split, or null for the official ones")]
EmbeddedRows = Annotated[
    dict[Annotated[str, OneOf(SPLITS)], NonNegativeInt] | None,
    Hint("use {train: N, validation: N, test: N}, or null for thousands"),
]


def _different(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("named twice")
    return names


Kinds = Annotated[
    list[Annotated[str, OneOf(KINDS)]],
    Field(min_length=1),
    AfterValidator(_different),
    Hint(f"give a list of some of {', '.join(KINDS)}"),
]


class Part(OpenBlock):
    """A dataset of `data.parts`; its own options stand beside these, and the dataset checks them."""

    dataset: Text | None = None
    target: Text | None = Field(None, alias="_target_")
    path: PathText | None = None
    embedded_rows: EmbeddedRows = None
    weight: Positive = 1.0
    only: Annotated[Any, OneOf(("train", "test", None))] = None

    @model_validator(mode="after")
    def _names_a_dataset(self) -> Self:
        if self.dataset is None and self.target is None:
            raise UserError("a part of data.parts names no dataset", hint="{dataset: NAME, path: PATH}")
        return self


def _form(value: Any) -> str | None:
    if isinstance(value, dict):
        return "<blocks>"
    return "<list>" if isinstance(value, list) else None


Parts = Annotated[
    Annotated[list[Part], Tag("<list>")] | Annotated[dict[str, Part], Tag("<blocks>")],
    Discriminator(_form, custom_error_type="parts_type", custom_error_message="a list, or blocks by name"),
]


class NamedSet(OpenBlock):
    """A test set of `data.exclude`; its dataset's own options may stand beside these."""

    key: ClassVar[str] = "a test set of data.exclude"
    dataset: Text | None = None
    target: Text | None = Field(None, alias="_target_")
    path: PathText
    split: Split = None

    @model_validator(mode="after")
    def _names_a_dataset(self) -> Self:
        if self.dataset is None and self.target is None:
            raise UserError(f"{self.key} names no dataset", hint="{dataset: NAME, path: PATH}")
        return self


class FittingSet(NamedSet):
    """Labelled rows of `benchmark.fit_on` or `benchmark.judge_labels`."""

    key: ClassVar[str] = "a set of labelled rows"
    num_rows: NumRows = None


class Negatives(Block):
    """`data.negatives`; what is left out takes the defaults of `data_modules.negatives`."""

    kinds: Kinds | None = None
    num: Count = 4
    seed: Seed = 0
    weights: Text = "spacy-sm"


class FirstStage(OpenBlock):
    """`data.first`: the name of a first training, and the values that take the place of the block's own."""

    stage: Text
    path: PathText | None = None
    embedded_rows: EmbeddedRows = None
    num_rows: NumRows = None
    parts: Parts | None = None


class Data(OpenBlock):
    """`data`, with the switches of single datasets beside these keys."""

    name: Text
    path: PathText | None
    embedded_rows: EmbeddedRows
    split: Split
    num_rows: NumRows
    on_bad_row: OnBadRow
    validation_fraction: PartialShare
    test_fraction: PartialShare
    fold: Annotated[NonNegativeInt | None, Hint("use 0, 1, ... up to data.num_folds - 1, or null")]
    num_folds: Annotated[int, Field(ge=2, le=10**6), Hint("use 2 or more")]
    exclude: list[NamedSet]
    negatives: Negatives | None
    batch_size: Annotated[Count | None, BATCH_SIZE]
    max_tokens: Annotated[Count | None, Hint("use 1 or more tokens, or null")]
    eval_max_tokens: Count
    num_workers: Annotated[int, Field(ge=0, le=1024), Hint("use 0 or more processes, at most 1024")]
    streaming: Switch
    num_readers: Count = NUM_READERS
    num_buffer_rows: Count = NUM_BUFFER_ROWS
    parts: Parts
    first: FirstStage | None = None
    # Sizes of the embedded corpus, which stand beside its part for the command line's sake.
    num_train: Count = 1
    num_validation: Count = 1
    num_test: Count = 1
    corpus_seed: Seed = 0

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if problems := list(self._conflicts()):
            raise join_problems(problems)
        return self

    def _conflicts(self) -> Any:
        if not self.parts:
            yield UserError("data.parts is empty", hint="name a dataset: data.parts=[{dataset: NAME, path: PATH}]")
        if self.fold is not None and self.fold >= self.num_folds:
            problem = f"data.fold is {self.fold}, data.num_folds {self.num_folds}"
            yield UserError(problem, hint="use a fold from 0 to num_folds - 1")
        if self.validation_fraction + self.test_fraction >= 1:
            problem = f"data.validation_fraction is {self.validation_fraction}, data.test_fraction {self.test_fraction}"
            yield UserError(problem, hint="lower them: nothing would be left to train on")
        if self.streaming and self.negatives is not None:
            problem = "data.streaming with data.negatives: negatives are made of a whole split"
            yield UserError(problem, hint="set data.streaming=false, or data.negatives=null")


def blocks_of(data: Data) -> list[tuple[str, Part]]:
    """The parts with their keys in the configuration, those of a first training too."""
    stages = {"data.parts": data.parts} | ({"data.first.parts": data.first.parts} if data.first else {})
    return [
        (f"{key}.{name}", part)
        for key, parts in stages.items()
        for name, part in (parts.items() if isinstance(parts, Mapping) else enumerate(parts or ()))
    ]
