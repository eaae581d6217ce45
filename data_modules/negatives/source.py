"""A dataset whose examples carry negatives."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from data_modules.encoding.cache import group_hash
from data_modules.negatives.kinds import KINDS, check_kinds
from data_modules.negatives.make import WEIGHTS, Negatives, cached_negatives, describe
from data_modules.reading.dataset import Records, Source, read_examples
from data_modules.reading.files import File
from data_modules.reading.rows import ReadReport
from data_modules.reading.wrappers import WrappedSource
from data_modules.splits import SplitPlan
from faithkit.errors import UserError
from faithkit.records import Example


@dataclass(frozen=True)
class NegativesSource(WrappedSource):
    """A dataset with negatives for the examples that train, made of such examples alone.

    Args:
        kinds: Kinds of negatives, in the order of their turns.
        num: Most negatives of an example.
        weights: A spaCy model, for entity swaps.
        split_plan: How the official splits are divided; None trains on all rows of each.
    """

    kinds: Sequence[str] = KINDS
    num: int = 4
    seed: int = 0
    weights: str = WEIGHTS
    split_plan: SplitPlan | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kinds(self.kinds, self.num)
        if self.generated:
            hint = "use a dataset that has files, such as data=faithdial"
            raise UserError(f"negatives are not made for {self.name}", hint=hint)

    def layout(self) -> Mapping[str, Any]:
        made = describe(self.kinds, self.num, self.seed, self.weights)
        return {**self.source.layout(), "negatives": made, "division": self.split_plan and asdict(self.split_plan)}

    def read_split(self, split: str, report: ReadReport) -> Records:
        """The examples of the split, each with its negatives; they are read whole, since negatives come of others."""
        inner = ReadReport(report.on_bad_row)
        num_rows = None if self.split_plan is None else self.split_plan.num_rows
        examples = list(read_examples(self.source, split, inner, num_rows))
        report.rejects += inner.rejects
        del inner.counts["kept"]  # counted where these are read
        rows = self._training_rows(examples, split)
        settings: dict[str, Any] = {"kinds": self.kinds, "num": self.num, "seed": self.seed, "weights": self.weights}
        made = cached_negatives([examples[row] for row in rows], **settings) if rows else Negatives([], [], Counter())
        report.counts.update(inner.counts + made.counts)
        negatives = dict(zip(rows, made.texts, strict=True))
        for row, example in enumerate(examples):
            yield replace(example, negatives=negatives.get(row, ())), None

    def read_file(self, file: File, split: str, report: ReadReport, start: int = 0) -> Records:
        raise AssertionError("negatives come of a whole split")

    def _training_rows(self, examples: Sequence[Example], split: str) -> list[int]:
        """The rows of a split that train: all, where there is no plan of division."""
        if self.split_plan is None:
            return list(range(len(examples)))
        groups = np.array([group_hash(example.group) for example in examples], np.uint64)
        parts = self.split_plan.rows(self.split_names(), split, groups)
        return parts["train"].tolist() if "train" in parts else []


def add_negatives(source: Source, settings: Mapping[str, Any], split_plan: SplitPlan | None) -> Source:
    """The dataset with negatives.

    Args:
        settings: `{kinds, num, seed, weights}`, all of them optional.

    Raises:
        UserError: A setting that there is not, or a dataset that is generated.
    """
    known = [option.name for option in fields(NegativesSource) if option.name not in ("path", "source", "split_plan")]
    if unknown := set(settings) - set(known):
        raise UserError(f"data.negatives has no option {min(unknown)!r}", hint=f"its options are {', '.join(known)}")
    return NegativesSource(source, **settings, split_plan=split_plan)
