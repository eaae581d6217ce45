"""Inspects the shards of a split once before training: their columns, their rows, and a hash to detect changes.

The rows of each shard are counted by reading them once, so that a bad row stops a run before it begins and the number
of steps is known. The counts are kept in the cache for later launches. So is the number of examples before every
1,024th row: rows that are left out make it another number than that of the rows, and a reader that begins in the middle
of a shard finds by it where to read.
"""

import hashlib
import json
import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from data_modules.reading.dataset import Source
from data_modules.reading.files import File
from data_modules.reading.rows import EMPTY, NO_ROWS, ReadReport
from data_modules.reading.saved_datasets import arrow_schema
from data_modules.reading.shards import ShardFile, some_names
from data_modules.reading.table_files import read_table
from faithkit.errors import UserError, shorten
from faithkit.files.cache import DamagedEntry, cache_dir, cache_entry
from faithkit.words import VERSION as WORDS_VERSION

VERSION = 2  # raise it when an entry of the cache holds something else
STRIDE = 1024  # rows from one place where a reader may begin to the next
ENDS = 64 << 10  # bytes of either end of a shard that are hashed: a Parquet file describes itself at its end

log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class PinnedShard:
    """A shard as it was before the training.

    Args:
        pin: Size and a hash of both ends: differs where the shard was written anew. Its date does not count, so that
            a copy on another node is the same shard.
        num_rows: Examples that it gives, after filtering.
        before: Examples before every `STRIDE`th row, from the first one on.
    """

    file: File
    pin: str
    num_rows: int
    before: Sequence[int] = (0,)

    def place_of(self, example: int) -> tuple[int, int]:
        """Returns a row to read from for the sake of an example, and how many examples come from there before it."""
        stride = bisect_right(self.before, example) - 1
        return stride * STRIDE, example - self.before[stride]

    def check(self) -> None:
        """Refuses a shard that is gone or not as it was.

        Raises:
            UserError: It is.
        """
        if pin_of(self.file) != self.pin:
            problem = "the shard has changed since the training began"
            hint = "put the old shard back and resume=RUN; or train anew on shards that do not change"
            raise UserError(problem, place=str(self.file), hint=hint)


def pin_of(file: File) -> str:
    """Returns the size of a shard and a hash of its two ends; of a small one that is all of it.

    Raises:
        UserError: It is gone, or cannot be read.
    """
    with _bytes(file) as raw:
        size = raw.seek(0, 2)
        raw.seek(0)
        digest = hashlib.blake2b(raw.read(ENDS), digest_size=16)
        raw.seek(max(0, size - ENDS))
        digest.update(raw.read(ENDS))
    return f"{size} {digest.hexdigest()}"


@contextmanager
def _bytes(file: File) -> Iterator[BinaryIO]:
    if isinstance(file, ShardFile):
        with file.bytes() as raw:
            yield raw
        return
    try:
        with file.open("rb") as opened:
            yield opened if isinstance(file, Path) else BytesIO(opened.read())
    except FileNotFoundError as error:
        raise UserError("the shard is gone", place=str(file), hint="put it back, then resume=RUN") from error
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", place=str(file), hint="check data.path") from error


def pin_shards(source: Source, split: str, report: ReadReport) -> list[PinnedShard]:
    """Finds the shards that have rows, in the order of their names, and counts what becomes of their rows.

    Raises:
        UserError: The columns of two shards differ, or a row is bad under `on_bad_row=stop`.
    """
    files = list(source.files()[split])
    pins = [pin_of(file) for file in files]
    columns = {file: _columns(file) for file in files}
    filled = [file for file in files if columns[file]]
    differing = [file for file in filled if columns[file] != columns[filled[0]]]
    if differing:
        here, there = columns[differing[0]] or {}, columns[filled[0]] or {}
        names = sorted(name for name in {**here, **there} if here.get(name) != there.get(name))
        differences = "; ".join(
            f"{shorten(n)} is {here.get(n, 'missing')}, there {there.get(n, 'missing')}" for n in names[:3]
        )
        names_of_files = some_names([file.name for file in differing])
        problem = f"other columns than {filled[0].name} has: {differences}; so has {names_of_files}"
        hint = "write the shards with the same columns, or leave these out of data.path"
        raise UserError(problem, place=str(differing[0]), hint=hint)
    having = [bool(columns[file]) for file in files]
    key = [VERSION, STRIDE, WORDS_VERSION, source.name, split, dict(source.layout()), report.on_bad_row]
    key.append([[file.name, pin] for file, pin in zip(files, pins, strict=True)])
    name = hashlib.blake2b(json.dumps(key, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()

    def build(folder: Path) -> None:
        log.info("counting the rows of %s shards of %s/%s (kept for later launches)", len(files), source.name, split)
        counting = ReadReport(report.on_bad_row)
        counts, before = [], []
        for file, has_rows in zip(files, having, strict=True):
            count, so_far = (
                0,
                [0],
            )  # examples of the shard, and those before every `STRIDE`th row as far as they know it
            for count, (_, row) in enumerate(source.read_file(file, split, counting) if has_rows else (), start=1):
                while row is not None and row.number >= len(so_far) * STRIDE:
                    so_far.append(count - 1)
            counts.append(count)
            before.append(so_far)
        found = {"rows": counts, "before": before, "counts": dict(counting.counts), "rejects": counting.rejects}
        (folder / "shards.json").write_text(json.dumps(found, default=str))

    found = cache_entry(cache_dir("shards") / name, build, _read)
    report.counts += Counter(found["counts"])
    report.rejects += found["rejects"]
    if empty := having.count(False):
        report.count(EMPTY, empty)
    shards = [PinnedShard(*each) for each in zip(files, pins, found["rows"], found["before"], strict=True)]
    return [shard for shard in shards if shard.num_rows]


def _read(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / "shards.json").read_text())
    except (OSError, ValueError) as error:
        raise DamagedEntry(str(error)) from error
    return found


def first_rows(shards: Sequence[PinnedShard], num_rows: int | None) -> list[PinnedShard]:
    """Takes the shards of the first examples, the last of them in part."""
    kept, left = [], num_rows
    for shard in shards:
        if left is not None:
            shard = replace(shard, num_rows=min(shard.num_rows, left))
            left -= shard.num_rows
        if shard.num_rows:
            kept.append(shard)
    return kept


def _columns(file: File) -> dict[str, str] | None:
    """Returns the columns of a shard with their types; None of an empty one. Rows of JSON each have other names."""
    if file.name.endswith(".parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with _bytes(file) as raw, pq.ParquetFile(raw) as table:
                if table.metadata.num_rows == 0:
                    return None
                schema = arrow_schema(file) if isinstance(file, Path) else table.schema_arrow
        except pa.ArrowException as error:
            hint = "write it again, or leave it out of data.path"
            raise UserError(f"no whole Parquet file: {error}", place=str(file), hint=hint) from error
        return {field.name: str(field.type) for field in schema}
    try:
        row = next(islice(read_table(file, ReadReport("skip")), 1), None)
    except UserError as error:
        if error.problem == NO_ROWS:
            return None
        raise
    is_table = file.name.endswith((".csv", ".tsv"))
    return dict.fromkeys(row.values, "a column") if row is not None and is_table else {"": "rows"}
