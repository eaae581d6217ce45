"""The interface of encoders, and the encoded rows that batches are made of.

Sequences of different lengths are kept in two flat arrays (`Ragged`), from tokenizer to batch. For causal language
models each row of a batch is a context that is read and a response that is learnt.

Shapes below: R rows, V values in all, W the width of the longest row.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from faithkit.provenance.row_keys import RowKeys
from faithkit.records import Example

if TYPE_CHECKING:
    import pyarrow as pa

ENCODING_VERSION = 5  # part of every cache key: raise it when the same records would encode differently
NO_LABEL = -1
MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids")  # of a batch, what an encoder model takes
LONG = 48  # values of a row on average: from here on copying row by row is faster than value by value
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of different lengths; row i is `values[offsets[i] : offsets[i + 1]]`.

    Args:
        values: All rows, one after the other. Shape (V,).
        offsets: The beginning of each row, and the end of the last one. Shape (R + 1,).
    """

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def from_lists(cls, rows: Iterable[Sequence[int]]) -> "Ragged":
        """Copies lists of numbers."""
        rows = list(rows)
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        values = np.fromiter((value for row in rows for value in row), np.int32, int(lengths.sum()))
        return cls(values, offsets_of(lengths))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each row. Shape (R,)."""
        return self.offsets[1:] - self.offsets[:-1]  # a third of the time of np.diff

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, index: int) -> NDArray[np.int32]:
        """Returns one row, as a view."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def take(self, indices: NDArray[np.int64]) -> "Ragged":
        """Copies the rows at `indices`, in that order."""
        begins = self.offsets[indices]
        return self._copy(begins, self.offsets[indices + 1] - begins)

    def cut(self, longest: NDArray[np.int64]) -> "Ragged":
        """Cuts each row to its `longest`; the same rows where nothing is too long. Shape (R,)."""
        lengths = np.minimum(self.lengths, longest)
        return self if int(lengths.sum()) == len(self.values) else self._copy(self.offsets[:-1], lengths)

    def slice_rows(self, indices: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> "Ragged":
        """Copies a part of each row at `indices`.

        Args:
            indices: Rows, in the order of the result. Shape (N,), like the others.
            starts: The part's beginning, counted from that of its row.
            lengths: The part's length.
        """
        return self._copy(self.offsets[indices] + starts, lengths)

    def _copy(self, begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> "Ragged":
        offsets = offsets_of(lengths)
        if len(lengths) and offsets[-1] >= LONG * len(lengths):
            bounds = zip(begins.tolist(), (begins + lengths).tolist(), strict=True)
            return Ragged(np.concatenate([self.values[begin:end] for begin, end in bounds]), offsets)
        places = (begins - offsets[:-1]).repeat(lengths) + np.arange(offsets[-1])  # a place for each value copied
        return Ragged(self.values[places], offsets)


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


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the beginnings of rows of these lengths, and the end of the last: (R,) to (R + 1,)."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def steps_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts 0, 1, 2, ... within each row: lengths 2 and 3 give 0 1 0 1 2. Shape (R,) to (V,)."""
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)


def stack_rows(parts: Sequence[Ragged]) -> Ragged:
    """Puts the rows of all parts below each other: R is the sum of the parts' row counts."""
    return Ragged(np.concatenate([p.values for p in parts]), offsets_of(np.concatenate([p.lengths for p in parts])))


def join_rows(parts: Sequence[Ragged]) -> Ragged:
    """Joins the rows of all parts side by side: row i of the result is row i of every part, in their order."""
    lengths = np.sum([part.lengths for part in parts], axis=0)  # (R,)
    offsets = offsets_of(lengths)
    values = np.empty(int(offsets[-1]), np.int32)
    begin = offsets[:-1].copy()  # (R,): in each row of the result, the place that the next part goes to
    for part in parts:
        # A whole row moves by one distance: from its place in the part to its place in the result.
        distance = np.repeat(begin - part.offsets[:-1], part.lengths)  # (V of the part,)
        values[distance + np.arange(len(part.values))] = part.values
        begin += part.lengths
    return Ragged(values, offsets)


def constant_rows(row: Sequence[int], count: int) -> Ragged:
    """Repeats a short row `count` times, for instance a special token in front of every sequence."""
    values = np.tile(np.asarray(row, np.int32), count)
    return Ragged(values, np.arange(count + 1, dtype=np.int64) * len(row))


def pad_rows(rows: Ragged, fill: int) -> NDArray[np.int64]:
    """Pads the rows at the right with `fill`, to a rectangle of shape (R, W)."""
    lengths = rows.lengths
    padded = np.full((len(rows), int(lengths.max(initial=0))), fill, np.int64)
    inside = np.arange(padded.shape[1])[None, :] < lengths[:, None]  # (R, W)
    padded[inside] = rows.values  # a boolean mask is filled row by row, which is the order of `values`
    return padded


def targets_of(response: Ragged) -> dict[str, NDArray[Any]]:
    """Makes the targets, flat, response by response.

    `target` [tokens] holds the responses' tokens with their eos, `target_row` the row of each.
    """
    row = np.repeat(np.arange(len(response)), response.lengths)
    return {"target": response.values.astype(np.int64), "target_row": row}


def read_part(response: Ragged) -> Ragged:
    """Returns the responses without their last token, the eos: it predicts nothing and is not read."""
    count = len(response)
    return response.slice_rows(np.arange(count), np.zeros(count, np.int64), response.lengths - 1)


def causal_batch(context: Ragged, response: Ragged, *, pad_id: int, packed: bool) -> dict[str, NDArray[Any]]:
    """Makes the arrays of a batch: those of `targets_of`, and the model's input.

    `target_at` [tokens] is the place that predicts each target, counted over the model's whole output.

    packed: input_ids, position_ids [1, tokens], sequence_lengths [rows]
    padded: input_ids, attention_mask [rows, width]
    """
    batch = targets_of(response)
    row, sequence = batch["target_row"], join_rows([context, read_part(response)])
    place = context.lengths[row] - 1 + steps_of(response.lengths)  # the context's last token predicts the first
    if not packed:
        batch |= padded_inputs(sequence, pad_id)
        return batch | {"target_at": row * batch["input_ids"].shape[1] + place}
    return batch | {
        "input_ids": sequence.values[None].astype(np.int64),
        "position_ids": steps_of(sequence.lengths)[None],
        "sequence_lengths": sequence.lengths,
        "target_at": sequence.offsets[row] + place,
    }


def padded_inputs(rows: Ragged, pad_id: int) -> dict[str, NDArray[Any]]:
    """Pads rows to a rectangle, with the mask of what is read."""
    inside = np.arange(int(rows.lengths.max(initial=0))) < rows.lengths[:, None]
    return {"input_ids": pad_rows(rows, pad_id), "attention_mask": inside.astype(np.int64)}


def branched_batch(context: Ragged, response: Ragged, family: NDArray[np.uint64]) -> dict[str, NDArray[Any]]:
    """Makes the arrays of a batch: those of `targets_of`, and the model's input [1, tokens].

    part_lengths [parts]: of each sequence its beginning and its branches; a row without relatives is a single branch
    part_counts [sequences]: parts of each sequence
    target_at [tokens]: the place that predicts each target; the targets keep the order of the rows

    Args:
        family: The same number for rows that may share a beginning [rows].
    """
    whole = join_rows([context, read_part(response)])
    ids: list[NDArray[np.int32]] = []
    places: list[Ints] = []
    lengths: list[int] = []
    counts: list[int] = []
    start = np.zeros(len(whole), np.int64)  # the place that a row's first token would have if the row were read alone
    end = 0
    # The rows of each family, in the order in which the families first occur.
    _, first, number = np.unique(family, return_index=True, return_inverse=True)
    order = np.argsort(first[number], kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(first[number][order])) + 1):
        shared = 0  # tokens with which the contexts of these rows begin alike
        if len(rows) > 1:
            # A branch keeps a token at least: a row's first target is predicted by the last token of its context.
            width = int(context.lengths[rows].min()) - 1
            begins = np.stack([context.row(row)[:width] for row in rows])
            different = (begins != begins[0]).any(0)
            shared = int(np.argmax(different)) if different.any() else width
        parts = [whole.row(rows[0])[:shared], *(whole.row(row)[shared:] for row in rows)]
        sizes = [len(part) for part in parts]
        start[rows] = end + offsets_of(np.array(sizes, np.int64))[1:-1] - shared
        end += sum(sizes)
        ids += parts
        places += [np.arange(shared), *(np.arange(shared, shared + size) for size in sizes[1:])]
        lengths += sizes
        counts.append(len(sizes))
    batch = targets_of(response)
    row = batch["target_row"]
    return batch | {
        "input_ids": np.concatenate(ids)[None].astype(np.int64),
        "position_ids": np.concatenate(places)[None],
        "part_lengths": np.array(lengths, np.int64),
        "part_counts": np.array(counts, np.int64),
        "target_at": start[row] + context.lengths[row] - 1 + steps_of(response.lengths),
    }
