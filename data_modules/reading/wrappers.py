"""Datasets that wrap another one: they change one thing and forward everything else."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from data_modules.reading.dataset import Records, Source
from data_modules.reading.exclude import Excluded
from data_modules.reading.files import File
from data_modules.reading.rows import ReadReport, Row
from faithkit.errors import UserError
from faithkit.records import Example


@dataclass(frozen=True)
class WrappedSource(Source):
    """A dataset that forwards everything to another one; a wrapper overrides what it changes.

    `read_from` and `read_row` are inherited: they use the wrapper's `read_split` and `examples`.
    """

    source: Source
    path: str = field(init=False)

    def __post_init__(self) -> None:
        for attribute in Source.__annotations__:  # all that a dataset declares
            object.__setattr__(self, attribute, getattr(self.source, attribute))

    def files(self) -> Mapping[str, Sequence[File]]:
        return self.source.files()

    def check(self) -> None:
        self.source.check()

    def split_names(self) -> list[str]:
        return self.source.split_names()

    def sizes(self) -> Mapping[str, int] | None:
        return self.source.sizes()

    def layout(self) -> Mapping[str, Any]:
        return self.source.layout()

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        return self.source.examples(row, split, report)

    def read_split(self, split: str, report: ReadReport) -> Records:
        return self.source.read_split(split, report)

    def read_file(self, file: File, split: str, report: ReadReport, start: int = 0) -> Records:
        return self.source.read_file(file, split, report, start)

    def excluding(self, excluded: Excluded) -> Source | None:
        inner = self.source.excluding(excluded)
        return None if inner is None else replace(self, source=inner)


@dataclass(frozen=True)
class FilteringSource(WrappedSource):
    """A dataset that leaves out some records of another one: a filter overrides `drops`."""

    @abstractmethod
    def drops(self, example: Example) -> str | None:
        """Returns the outcome under which the example is dropped and counted; None keeps it."""

    def sizes(self) -> Mapping[str, int] | None:
        """Returns None: only reading shows how many are left."""
        return None

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        return (example for example in self.source.examples(row, split, report) if self._keeps(example, report))

    def read_split(self, split: str, report: ReadReport) -> Records:
        return (record for record in self.source.read_split(split, report) if self._keeps(record[0], report))

    def read_file(self, file: File, split: str, report: ReadReport, start: int = 0) -> Records:
        records = self.source.read_file(file, split, report, start)
        return (record for record in records if self._keeps(record[0], report))

    def _keeps(self, example: Example, report: ReadReport) -> bool:
        outcome = self.drops(example)
        if outcome is not None:
            report.count(outcome)
        return outcome is None


@dataclass(frozen=True)
class ExcludingSource(FilteringSource):
    """A dataset without the records of excluded knowledge or dialogues."""

    excluded: Excluded

    def layout(self) -> Mapping[str, Any]:
        return {**self.source.layout(), "excluded": self.excluded.digest}

    def drops(self, example: Example) -> str | None:
        return self.excluded.reason(example)


def exclude_from(source: Source, excluded: Excluded) -> Source:
    """Returns the dataset without the knowledge and dialogues of test sets that training must not touch."""
    if excluded == Excluded():
        return source
    if source.generated:
        raise UserError(f"data.exclude does not apply to {source.name}", hint="leave it out of data.parts")
    return source.excluding(excluded) or ExcludingSource(source, excluded)
