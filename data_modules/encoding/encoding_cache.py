"""Encodings on disk, made once: an Arrow file keyed by the content of the files, the layout and the tokenizer.

A folder `encodings/<key>/` holds `rows.arrow` (the columns of the encoder, and of every record its keys and itself as
JSON, read through a memory map) and `meta.json` (what was kept, dropped, cut and rejected). It appears whole or not at
all, and is made again where it is damaged (`faithkit.files.cache`).
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_modules.encoding.encoder import Columns, EncodedSplit, Encoder
from data_modules.encoding.ragged import Ragged
from data_modules.reading.dataset import Source, content_hash, read_examples
from data_modules.reading.rows import ReadReport
from faithkit.files.cache import DamagedEntry, cache_dir, cache_entry
from faithkit.provenance.row_keys import RowKeys, group_hash, row_keys
from faithkit.words import VERSION as WORDS_VERSION

RECORD, GROUP = "record", "group"
KEYS = tuple(f"seen_{kind}" for kind in RowKeys._fields)
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
            arrays = {
                name: pa.LargeListArray.from_arrays(pa.array(column.offsets), pa.array(column.values))
                if isinstance(column, Ragged)
                else pa.array(column)
                for name, column in chunk.columns.items()
            }
            arrays |= {GROUP: pa.array(chunk.groups, pa.uint64()), RECORD: pa.array(chunk.records, pa.large_string())}
            arrays |= {name: pa.array(keys) for name, keys in zip(KEYS, chunk.keys, strict=True)}
            batch = pa.RecordBatch.from_pydict(arrays)
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
        made = [name for name in table.column_names if name not in (RECORD, GROUP, *KEYS)]  # by the encoder
        columns = {name: _to_numpy(table[name]) for name in made}
        groups, records = _to_numpy(table[GROUP]), table[RECORD]
        keys = RowKeys(*(_to_numpy(table[name]) for name in KEYS))
        for chunk in records.chunks:
            if not pa.types.is_large_string(chunk.type) or chunk.null_count:
                raise ValueError(f"records of {chunk.type} with {chunk.null_count} missing ones")
            _, offsets, data = chunk.buffers()
            _check_offsets(np.frombuffer(offsets, np.int64, len(chunk) + 1), data.size if data else 0)
    except (KeyError, pa.ArrowException) as error:  # some of Arrow's are no ValueErrors
        raise ValueError(str(error)) from error
    return Rows(columns, groups, keys, records)


def _to_numpy(column: pa.ChunkedArray) -> Any:
    for chunk in column.chunks:
        ragged = pa.types.is_large_list(chunk.type)
        values = chunk.values if ragged else chunk
        if chunk.null_count or values.null_count or values.type not in FIXED:
            raise ValueError(f"a column of {chunk.type} with {chunk.null_count} missing values")
        if ragged:
            _check_offsets(_view(chunk.offsets), len(values))
    whole = column.combine_chunks() if column.num_chunks > 1 else column.chunk(0)
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    if not pa.types.is_large_list(column.type):
        return _view(whole)
    return Ragged(_view(whole.values), _view(whole.offsets))


def _view(array: pa.Array) -> Any:
    return np.from_dlpack(array)  # `to_numpy` would import pandas


def _check_offsets(offsets: NDArray[np.int64], size: int) -> None:
    if offsets[0] < 0 or offsets[-1] > size or bool((offsets[1:] < offsets[:-1]).any()):
        raise ValueError("rows that reach outside the file")


CACHE_VERSION = 3  # raise it when a folder holds something else, or its rows get other keys
RECORDS_AT_ONCE = (
    16_384  # records tokenised at a time: large enough for the tokenizer's threads, small enough for memory
)

log = logging.getLogger("faithkit")


def load_encoded(
    source: Source, split: str, encoder: Encoder, *, on_bad_row: str = "stop", num_rows: int | None = None
) -> EncodedSplit:
    """Returns the split from the cache, encoded first if it is not there yet."""
    # Words decide what some datasets make of their rows (BEGIN, Topical-Chat, weak ones) and what control tokens say.
    parts = [CACHE_VERSION, WORDS_VERSION, content_hash(source, split), encoder.fingerprint(), on_bad_row, num_rows]
    key = hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

    def build(folder: Path) -> None:
        log.info("encoding %s/%s (kept for later launches)", source.name, split)
        report = ReadReport(on_bad_row)
        examples = read_examples(source, split, report, num_rows)
        cut: Counter[str] = Counter()
        digest = hashlib.blake2b(digest_size=16)

        def chunks() -> Iterator[Chunk]:
            while chunk := list(islice(examples, RECORDS_AT_ONCE)):
                records = [json.dumps(example.to_dict()) for example in chunk]
                digest.update("\n".join(records).encode())
                groups = [group_hash(example.group) for example in chunk]
                yield Chunk(encoder.encode(chunk, cut), groups, row_keys(chunk), records)

        write_rows(folder / "rows.arrow", chunks())
        counts = dict(report.counts) | {name: count for name, count in cut.items() if count}
        meta = {"counts": counts, "rejects": report.rejects, "fingerprint": digest.hexdigest()}
        (folder / "meta.json").write_text(json.dumps(meta))

    def read(folder: Path) -> EncodedSplit:
        try:
            meta = json.loads((folder / "meta.json").read_text())
            rows = read_rows(folder / "rows.arrow")
            counts, rejects, fingerprint = Counter(meta["counts"]), meta["rejects"], meta["fingerprint"]
        except (OSError, ValueError, KeyError) as error:  # of a file that is too large for a checksum
            raise DamagedEntry(str(error)) from error
        return EncodedSplit(source.name, split, *rows, counts, rejects, fingerprint)

    return cache_entry(cache_dir("encodings") / key, build, read)
