"""The interface of encoders, and the encoded rows that batches are made of."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.ragged import Ragged, stack_rows
from faithkit.provenance.row_keys import RowKeys
from faithkit.records import Example

if TYPE_CHECKING:
    import pyarrow as pa

ENCODING_VERSION = 5  # part of every cache key: raise it when the same records would encode differently
NO_LABEL = -1
MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids")  # of a batch, what an encoder model takes

# One entry a row in each; `length` orders the batches, and `second_length` those rows of them that are about as long.
Columns = dict[str, NDArray[Any] | Ragged]


@dataclass(frozen=True)
class EncodedSplit:
    """One split of one source, encoded. Columns of numbers are views of the memory map; records are built on demand."""

    name: str
    split: str
    columns: Columns
    groups: NDArray[np.uint64]
    keys: RowKeys
    records: "pa.ChunkedArray"
    counts: Counter[str]
    rejects: list[dict[str, Any]]
    fingerprint: str

    def __len__(self) -> int:
        return len(self.groups)

    def example(self, index: int) -> Example:
        return Example.from_dict(json.loads(self.records[index].as_py()))

    def examples(self, indices: Iterable[int]) -> Iterator[Example]:
        return (self.example(int(index)) for index in indices)


@dataclass(frozen=True)
class Subset:
    """Rows of an encoded split; `name` is that of their part in the mix."""

    name: str
    encoded: EncodedSplit
    indices: NDArray[np.int64]
    weight: float = 1.0

    def __len__(self) -> int:
        return len(self.indices)

    def examples(self) -> list[Example]:
        return list(self.encoded.examples(self.indices))

    def sample(self, count: int) -> "Subset":
        """Draws at most `count` rows, the same ones each time."""
        if len(self) <= count:
            return self
        drawn = np.random.default_rng(0).permutation(len(self))[:count]
        return replace(self, indices=self.indices[np.sort(drawn)])

    def keys(self) -> RowKeys:
        return RowKeys(*(keys[self.indices] for keys in self.encoded.keys))


class Encoder(Protocol):
    """Turns records into columns of numbers, and some rows of them into a batch; the base class of all encoders.

    Attributes:
        numbers_passages: Each passage of a list that serves as knowledge is read with its number.
    """

    numbers_passages: ClassVar[bool] = False

    def fingerprint(self) -> str:
        """Identifies all that the columns depend on except the records: part of their cache key."""
        ...

    @property
    def shares_beginnings(self) -> bool:
        """True if rows of one `family` (a column) belong into one batch, where their common beginning is read once."""
        return False

    def encode(self, examples: Sequence[Example], counts: Counter[str]) -> Columns:
        """Makes the columns of some records.

        Args:
            counts: Counts what is truncated or missing; logged, and stored with the cache entry.
        """
        ...

    def fit(self, train: Sequence[Subset]) -> None:
        """Takes the encoded training rows before any batch is made; does nothing by default.

        Args:
            train: The training rows of each dataset; empty if they are streamed.
        """
        return

    def collate(self, columns: Columns) -> Mapping[str, NDArray[Any]]:
        """Makes the arrays of a batch from the columns of its rows."""
        ...


def take_rows(columns: Columns, rows: NDArray[np.int64]) -> Columns:
    """Copies some rows of columns."""
    return {name: c.take(rows) if isinstance(c, Ragged) else c[rows] for name, c in columns.items()}


def merge_rows(parts: Sequence[Columns]) -> Columns:
    """Concatenates the rows of several columns of the same names."""
    if len(parts) == 1:
        return parts[0]
    merged: dict[str, Any] = {}
    for name, first in parts[0].items():
        columns: list[Any] = [part[name] for part in parts]
        merged[name] = stack_rows(columns) if isinstance(first, Ragged) else np.concatenate(columns)
    return merged


def question_text(example: Example) -> str:
    """Returns the turns of the history as one text, the oldest first: the question that the answer replies to."""
    return "\n".join(turn.text for turn in example.history)
