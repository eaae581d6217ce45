"""A source whose examples carry negatives."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from common.errors import UserError
from common.records import Example
from data_modules.negatives.make import KINDS, WEIGHTS, cached_negatives, check_kinds, describe
from data_modules.rows import ReadReport, Row
from data_modules.source import File, Source, read_examples


@dataclass(frozen=True)
class WithNegatives:
    """A source with `Example.negatives` filled, split by split: a split's negatives come of that split alone.

    Args:
        kinds: Of negatives, in the order of their turns.
        num: Most negatives of an example.
        weights: A spaCy model, for entity swaps.
    """

    source: Source
    kinds: Sequence[str] = KINDS
    num: int = 4
    seed: int = 0
    weights: str = WEIGHTS

    def __post_init__(self) -> None:
        check_kinds(self.kinds, self.num)
        if hasattr(self.source, "generate"):
            mend = "use a dataset that has files, such as data=faithdial"
            raise UserError(f"negatives are not made for {self.source.name}", mend=mend)

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
        return {**self.source.layout(), "negatives": describe(self.kinds, self.num, self.seed, self.weights)}

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        """Never called: negatives come of the whole split."""
        raise AssertionError("negatives are made together")

    def together(self, split: str, report: ReadReport) -> Iterator[Example]:
        """The examples of the split, each with its negatives."""
        inner = ReadReport(report.on_bad_row)
        examples = list(read_examples(self.source, split, inner))
        report.rejects += inner.rejects
        del inner.counts["kept"]  # counted where these are read
        made = cached_negatives(examples, kinds=self.kinds, num=self.num, seed=self.seed, weights=self.weights)
        report.counts.update(inner.counts + made.counts)
        for example, texts in zip(examples, made.texts, strict=True):
            yield replace(example, negatives=texts)
