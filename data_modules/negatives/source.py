"""A source whose examples carry negatives."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from data_modules.encoding.cache import group_hash
from data_modules.negatives.make import KINDS, WEIGHTS, Negatives, cached_negatives, check_kinds, describe
from data_modules.reading.dataset import File, Source, read_examples
from data_modules.reading.rows import ReadReport, Row
from data_modules.splits import SplitPlan
from faithkit.errors import UserError
from faithkit.records import Example


@dataclass(frozen=True)
class NegativesSource:
    """A source whose examples for training have negatives, which come of such examples alone.

    Args:
        kinds: Of negatives, in the order of their turns.
        num: Most negatives of an example.
        weights: A spaCy model, for entity swaps.
        split_plan: Of the official splits; None trains on all rows of each.
    """

    source: Source
    kinds: Sequence[str] = KINDS
    num: int = 4
    seed: int = 0
    weights: str = WEIGHTS
    split_plan: SplitPlan | None = None

    def __post_init__(self) -> None:
        check_kinds(self.kinds, self.num)
        if hasattr(self.source, "generate"):
            hint = "use a dataset that has files, such as data=faithdial"
            raise UserError(f"negatives are not made for {self.source.name}", hint=hint)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def train_only(self) -> bool:
        return getattr(self.source, "train_only", False)

    @property
    def default_split(self) -> str:
        return getattr(self.source, "default_split", "test")

    def files(self) -> Mapping[str, Sequence[File]]:
        return self.source.files()

    def layout(self) -> Mapping[str, Any]:
        made = describe(self.kinds, self.num, self.seed, self.weights)
        return {**self.source.layout(), "negatives": made, "division": self.split_plan and asdict(self.split_plan)}

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        """Never called: negatives come of the whole split."""
        raise AssertionError("negatives are made together")

    def read_split(self, split: str, report: ReadReport) -> Iterator[Example]:
        """The examples of the split, each with its negatives."""
        inner = ReadReport(report.on_bad_row)
        num_rows = None if self.split_plan is None else self.split_plan.num_rows
        examples = list(read_examples(self.source, split, inner, num_rows))
        report.rejects += inner.rejects
        del inner.counts["kept"]  # they are counted again where this source is read
        rows = self._trained_on(examples, split)
        settings: dict[str, Any] = {"kinds": self.kinds, "num": self.num, "seed": self.seed, "weights": self.weights}
        made = cached_negatives([examples[row] for row in rows], **settings) if rows else Negatives([], [], Counter())
        report.counts.update(inner.counts + made.counts)
        negatives = dict(zip(rows, made.texts, strict=True))
        for row, example in enumerate(examples):
            yield replace(example, negatives=negatives.get(row, ()))

    def _trained_on(self, examples: Sequence[Example], split: str) -> list[int]:
        """The rows of a split that train; all, where nobody says how it is divided."""
        if self.split_plan is None:
            return list(range(len(examples)))
        groups = np.array([group_hash(example.group) for example in examples], np.uint64)
        parts = self.split_plan.rows(list(self.files()), split, groups)
        return parts["train"].tolist() if "train" in parts else []
