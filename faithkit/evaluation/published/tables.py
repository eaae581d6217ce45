"""Reads published figures, each file one table of one paper, and refuses a file whose figures were changed.

A correction changes the file, its checksum here, and the one that tests/faithkit/evaluation/test_published.py pins.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.strict_json import read_strict_json

FOLDER = Path(__file__).parent
MEND = "install faithkit again; or, to correct a figure, see faithkit/evaluation/published/tables.py"
CHECKSUMS = {  # SHA-256
    "faithdial_transfer": "426a075fe2dc6e3d25561be7ccba02b261def91e468a091a320b9f8cc8da5f0f",
    "lettucedetect": "b12762549e092ad13d965a767d55ee311a73a39eca1eb0a5900bc488e01ba295",
    "luna": "729c5dc5a7cf2594489acdc03ff9406f220a083ce3702cc61b29539ed3df8f8c",
    "rag_hat": "9fc8760dcce5464ec2b2c784daba372da29e4b25e289af22b90608d7a1ba9872",
    "ragtruth_basic": "e9fa9c28343f227b44d2fc39c4081b021708813d7b2c813785220881d7de6dbd",
    "ragtruth_lengths": "eadc0eaf564299517021e87d619bfb34d73533e9d247f57890707f68e8a5058c",
    "ragtruth_models": "3bbde123945b2b321eed46005fbdca1ebe082170cb43a12440ca5dd06d2d50ad",
    "ragtruth_response_level": "ebe828c12594ec74a2d91e602e6b52d7d897da6342e017f1c11523a038c92052",
    "ragtruth_revised": "eaf5b14b2d3b245f8bac6806628ab2df5f3914258689ae3bec8520242baf0395",
    "ragtruth_span_level": "0248d439c94f9da2a483ef7de40e85b1f5a4416c5b7dde2ff65f868ad4ade420",
    "ragtruth_suppression": "83a3f98c394022d253a9d5cee953f514a77f1a91fef7d56f93ae78204964443c",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """A table of a paper, as it was printed.

    Args:
        paper: Authors, year and title.
        version: Of the paper, where it has several.
        read_in: Where the figures were read: the paper itself, or one that cites it.
        table: Its number in the paper; None where the figures were not read there.
        protocol: How the figures were measured, where that differs from ours.
        note: What a reader should know of the figures.
        rows: Values by column.
    """

    paper: str
    version: str | None
    read_in: str
    table: str | None
    unit: str
    protocol: str | None
    note: str | None
    rows: tuple[Mapping[str, Any], ...]

    @property
    def citation(self) -> str:
        """Names authors, year, version and table, and who cites them where that is not the paper itself."""
        authors_and_year = self.paper.split(",")[0]
        as_cited = None if self.table else f"read in {self.read_in}"
        return ", ".join(part for part in (authors_and_year, self.version, self.table, as_cited) if part)


@cache
def published_table(name: str) -> PublishedTable:
    """Reads one of CHECKSUMS by its name."""
    return read_table(FOLDER / f"{name}.json")


def read_table(path: Path) -> PublishedTable:
    """Reads a file of published figures.

    Raises:
        UserError: It is missing, or not byte for byte what its checksum stands for.
    """
    values = read_strict_json(path, hint=MEND)
    if hashlib.sha256(path.read_bytes()).hexdigest() != CHECKSUMS[path.stem]:
        raise UserError("published figures were changed: the checksum differs", place=str(path), hint=MEND)
    columns = values.pop("columns")
    rows = tuple(dict(zip(columns, row, strict=True)) for row in values.pop("rows"))
    return PublishedTable(**values, rows=rows)
