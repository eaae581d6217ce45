"""Test sets that training must not touch: a record whose knowledge stands in one of them is dropped, and counted.

A zero-shot score means little where training has seen the same source texts. Only the knowledge of the test set is
used; its responses and labels are not.
"""

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_modules.datasets.begin import WHOLE_KNOWLEDGE
from data_modules.reading.dataset import File, Source, Together
from data_modules.reading.rows import ReadReport, Row
from faithkit.records import Example

DROPPED = "dropped: knowledge stands in an excluded test set"


def text_key(text: str) -> str:
    """Letters and digits alone, in lower case and without accents: equal for texts that differ in tokenisation only."""
    return "".join(c for c in unicodedata.normalize("NFKD", text).lower() if c.isalnum())


@dataclass(frozen=True)
class Excluded:
    """Knowledge texts that must not be trained on, as `text_key` gives them."""

    keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, examples: Iterable[Example]) -> "Excluded":
        return cls(frozenset(text_key(example.knowledge) for example in examples) - {""})

    def covers(self, example: Example) -> bool:
        return text_key(example.meta.get(WHOLE_KNOWLEDGE, example.knowledge)) in self.keys

    @property
    def digest(self) -> str:
        """Names the set in a cache's key."""
        return hashlib.blake2b("\n".join(sorted(self.keys)).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class ExcludingSource:
    """A source less what is excluded."""

    source: Source
    excluded: Excluded

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def ids_repeat(self) -> bool:
        return getattr(self.source, "ids_repeat", False)

    def files(self) -> Mapping[str, Sequence[File]]:
        return self.source.files()

    def layout(self) -> Mapping[str, Any]:
        return {**self.source.layout(), "excluded": self.excluded.digest}

    @property
    def read_split(self) -> Together | None:
        if inner := getattr(self.source, "read_split", None):
            return lambda split, report: self._kept(inner(split, report), report)
        return None

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        return self._kept(self.source.examples(row, split, report), report)

    def _kept(self, examples: Iterator[Example], report: ReadReport) -> Iterator[Example]:
        for example in examples:
            if self.excluded.covers(example):
                report.count(DROPPED)
            else:
                yield example
