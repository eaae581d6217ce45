"""Datasets without files, whose records are made on demand."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.reading.dataset import Records, Source
from data_modules.reading.files import File
from data_modules.reading.rows import ReadReport
from faithkit.records import Example


@dataclass(frozen=True, kw_only=True)
class GeneratedSource(Source):
    """A dataset that makes any stretch of a split: it has `sizes` and `generate` in the place of files."""

    generated: ClassVar[bool] = True

    def files(self) -> Mapping[str, Sequence[File]]:
        """None."""
        return {}

    @abstractmethod
    def sizes(self) -> Mapping[str, int]:
        """The number of records of each split."""

    @abstractmethod
    def generate(self, split: str, start: int = 0, stop: int | None = None) -> Iterator[Example]:
        """Records `start` to `stop` (or to the split's end), without making those before them."""

    def split_names(self) -> list[str]:
        return list(self.sizes())

    def read_split(self, split: str, report: ReadReport) -> Records:
        return self.read_from(0, split, report)

    def read_from(self, start: int, split: str, report: ReadReport) -> Records:
        return ((example, None) for example in self.generate(split, start))
