"""The dataset that a fold of `speed.domains` trains on: rows that the harness has chosen and written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data_modules.reading.dataset import Source
from data_modules.reading.files import File
from data_modules.reading.rows import BadRow, ReadReport, Row
from faithkit.records import Example


@dataclass(frozen=True, kw_only=True)
class DomainRows(Source):
    """JSON lines of `Example.to_dict()`, all in the split `all`.

    Args:
        path: The file.
    """

    name: ClassVar[str] = "domain_rows"
    default_split: ClassVar[str] = "all"

    def files(self) -> Mapping[str, Sequence[File]]:
        return {"all": [Path(self.path)]}

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        try:
            yield Example.from_dict({**row.values, "split": split})
        except (TypeError, KeyError) as error:
            raise BadRow(f"no example: {error}") from error
