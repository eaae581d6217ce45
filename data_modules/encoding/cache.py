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
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_modules.encoding.arrow_file import Chunk, read_rows, write_rows
from data_modules.encoding.pairs import Columns, Encoder
from data_modules.reading.dataset import Source, read_examples
from data_modules.reading.rows import ReadReport
from faithkit.files.cache import DamagedEntry, cache_dir, cache_entry
from faithkit.provenance.row_keys import RowKeys, row_keys
from faithkit.records import Example
from faithkit.words import VERSION as WORDS_VERSION

CACHE_VERSION = 3  # raise it when a folder holds something else, or its rows get other keys
CHUNK = 16_384  # records tokenised at a time: large enough for the tokenizer's threads, small enough for memory

log = logging.getLogger("faithkit")


@dataclass(frozen=True)
class EncodedSplit:
    """One split of one source, encoded. Columns of numbers are views of the memory map; records are built on demand."""

    name: str
    split: str
    columns: Columns
    groups: NDArray[np.uint64]
    keys: RowKeys
    records: pa.ChunkedArray
    counts: Counter[str]
    rejects: list[dict[str, Any]]
    fingerprint: str

    def __len__(self) -> int:
        return len(self.groups)

    def example(self, index: int) -> Example:
        return Example.from_dict(json.loads(self.records[index].as_py()))

    def examples(self, indices: Iterable[int]) -> Iterator[Example]:
        return (self.example(int(index)) for index in indices)


def load_encoded(
    source: Source, split: str, encoder: Encoder, *, on_bad_row: str = "stop", num_rows: int | None = None
) -> EncodedSplit:
    """The split from the cache, encoded first if it is not there yet."""
    key = _key(source, split, encoder, on_bad_row, num_rows)

    def build(folder: Path) -> None:
        log.info("encoding %s/%s (kept for later launches)", source.name, split)
        _build(folder, source, split, encoder, ReadReport(on_bad_row), num_rows)

    return cache_entry(cache_dir("encodings") / key, build, lambda folder: _open(folder, source.name, split))


def _open(folder: Path, name: str, split: str) -> EncodedSplit:
    try:
        meta = json.loads((folder / "meta.json").read_text())
        rows = read_rows(folder / "rows.arrow")
        counts, rejects, fingerprint = Counter(meta["counts"]), meta["rejects"], meta["fingerprint"]
    except (OSError, ValueError, KeyError) as error:  # of a file that is too large for a checksum
        raise DamagedEntry(str(error)) from error
    return EncodedSplit(name, split, *rows, counts, rejects, fingerprint)


def group_hash(group: str) -> int:
    """A group's name as a number that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(group.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def content_hash(source: Source, split: str) -> str:
    """Hashes all that the records of a split depend on: the bytes of its files and the settings of its layout."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([source.name, split, dict(source.layout())], sort_keys=True, default=str).encode())
    for path in source.files().get(split, ()):
        digest.update(path.name.encode())  # the name is part of the ids
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _key(source: Source, split: str, encoder: Encoder, on_bad_row: str, num_rows: int | None) -> str:
    # Words decide what some datasets make of their rows (BEGIN, Topical-Chat, weak ones) and what control tokens say.
    parts = [CACHE_VERSION, WORDS_VERSION, content_hash(source, split), encoder.fingerprint(), on_bad_row, num_rows]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _build(
    folder: Path, source: Source, split: str, encoder: Encoder, report: ReadReport, num_rows: int | None
) -> None:
    examples = read_examples(source, split, report, num_rows)
    cut: Counter[str] = Counter()
    digest = hashlib.blake2b(digest_size=16)

    def chunks() -> Iterator[Chunk]:
        while chunk := list(islice(examples, CHUNK)):
            records = [json.dumps(example.to_dict()) for example in chunk]
            digest.update("\n".join(records).encode())
            groups = [group_hash(example.group) for example in chunk]
            yield Chunk(encoder.encode(chunk, cut), groups, row_keys(chunk), records)

    write_rows(folder / "rows.arrow", chunks())
    counts = dict(report.counts) | {name: count for name, count in cut.items() if count}
    meta = {"counts": counts, "rejects": report.rejects, "fingerprint": digest.hexdigest()}
    (folder / "meta.json").write_text(json.dumps(meta))
