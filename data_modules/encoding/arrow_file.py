"""Columns and records in an Arrow file: written chunk by chunk, read through a memory map.

What is read is checked so far that no damage can make a reader look outside the file: the schema, and the offsets of
rows of different lengths. Values are not looked at (the cache compares checksums).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_modules.encoding.pairs import Columns
from data_modules.encoding.ragged import Ragged
from faithkit.provenance.row_keys import RowKeys

RECORD, GROUP = "record", "group"
KEYS = tuple(f"seen_{kind}" for kind in RowKeys._fields)
OWN = (RECORD, GROUP, *KEYS)  # columns that are no encoder's
FIXED = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64())


class Chunk(NamedTuple):
    """Some rows: columns of numbers, and of each record its group's hash, its keys and itself as JSON."""

    columns: Columns
    groups: list[int]
    keys: RowKeys
    records: list[str]


class Rows(NamedTuple):
    """All rows of a file: views of its memory map."""

    columns: Columns
    groups: NDArray[np.uint64]
    keys: RowKeys
    records: pa.ChunkedArray


def write_rows(path: Path, chunks: Iterable[Chunk]) -> None:
    """Writes at least one chunk."""
    writer = None
    with pa.OSFile(str(path), "wb") as sink:
        for chunk in chunks:
            batch = _to_arrow(chunk)
            writer = writer or pa.ipc.new_file(sink, batch.schema)
            writer.write_batch(batch)
        assert writer is not None, "read_examples raises when nothing is left"
        writer.close()


def read_rows(path: Path) -> Rows:
    """Opens a file of `write_rows`.

    Raises:
        ValueError: It is no such file, or it is damaged.
        OSError: It cannot be read.
    """
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        table.validate()
        columns = {name: _to_numpy(table[name]) for name in table.column_names if name not in OWN}
        groups, records = _to_numpy(table[GROUP]), table[RECORD]
        keys = RowKeys(*(_to_numpy(table[name]) for name in KEYS))
        for chunk in records.chunks:
            _check_texts(chunk)
    except (KeyError, pa.ArrowException) as error:  # some of Arrow's are no ValueErrors
        raise ValueError(str(error)) from error
    return Rows(columns, groups, keys, records)


def _to_arrow(chunk: Chunk) -> pa.RecordBatch:
    arrays = {name: _arrow_array(column) for name, column in chunk.columns.items()}
    arrays |= {GROUP: pa.array(chunk.groups, pa.uint64()), RECORD: pa.array(chunk.records, pa.large_string())}
    arrays |= {name: pa.array(keys) for name, keys in zip(KEYS, chunk.keys, strict=True)}
    return pa.RecordBatch.from_pydict(arrays)


def _arrow_array(column: NDArray[Any] | Ragged) -> pa.Array:
    if isinstance(column, Ragged):
        return pa.LargeListArray.from_arrays(pa.array(column.offsets), pa.array(column.values))
    return pa.array(column)


def _to_numpy(column: pa.ChunkedArray) -> Any:
    for chunk in column.chunks:
        _check_numbers(chunk)
    whole = column.combine_chunks() if column.num_chunks > 1 else column.chunk(0)
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    if not pa.types.is_large_list(column.type):
        return whole.to_numpy()
    return Ragged(whole.values.to_numpy(), whole.offsets.to_numpy())


def _check_numbers(array: pa.Array) -> None:
    ragged = pa.types.is_large_list(array.type)
    values = array.values if ragged else array
    if array.null_count or values.null_count or values.type not in FIXED:
        raise ValueError(f"a column of {array.type} with {array.null_count} missing values")
    if ragged:
        _check_offsets(array.offsets.to_numpy(), len(values))


def _check_texts(array: pa.Array) -> None:
    if not pa.types.is_large_string(array.type) or array.null_count:
        raise ValueError(f"records of {array.type} with {array.null_count} missing ones")
    _, offsets, data = array.buffers()
    _check_offsets(np.frombuffer(offsets, np.int64, len(array) + 1), data.size if data else 0)


def _check_offsets(offsets: NDArray[np.int64], size: int) -> None:
    if offsets[0] < 0 or offsets[-1] > size or bool((offsets[1:] < offsets[:-1]).any()):
        raise ValueError("rows that reach outside the file")
