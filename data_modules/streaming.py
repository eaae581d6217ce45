"""Training batches from a corpus that is never held in memory or on the disk as a whole.

The order depends on seed and epoch alone: the pieces of the corpus (its shards, or all of it) are permuted and
concatenated; `Readers` cuts this sequence into stretches, one for each reader; a reader shuffles its stretch by a
buffer. It encodes as many rows as the buffer holds, orders them by length, cuts them into its parts of batches, and
yields these in a random order that is the same for all readers, so that the parts of a batch are of similar length. A
step can be found without the steps before it: training resumes in the middle of a piece from the number of its step.
Shards are pinned before training: their columns, their rows, and a hash to detect changes.

Files sorted by class should be shuffled once before. A JSON list is read whole by its reader: JSON lines, TSV and CSV
are not.
"""

import hashlib
import json
import logging
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, get_worker_info

from data_modules.data_options import DataOptions
from data_modules.encoding.batching import PADDING_ROW, collate_batch
from data_modules.encoding.encoder import Columns, Encoder, Ragged, merge_rows, take_rows
from data_modules.reading.dataset import Source, check_num_rows, content_hash
from data_modules.reading.files import File, arrow_schema
from data_modules.reading.rows import EMPTY, NO_ROWS, ReadReport
from data_modules.reading.shards import ShardFile, some_names
from data_modules.reading.table_files import read_table
from faithkit.errors import UserError, shorten
from faithkit.fast import plan_batches
from faithkit.files.cache import cache_dir, cache_entry
from faithkit.provenance.row_keys import RowKeys, row_keys
from faithkit.records import Example
from faithkit.words import VERSION as WORDS_VERSION

VERSION = 2  # raise it when an entry of the cache holds something else
STRIDE = 1024  # rows from one place where a reader may begin to the next
ENDS = 64 << 10  # bytes of either end of a shard that are hashed: a Parquet file describes itself at its end
KEYS = 16_384  # records per call of `row_keys`
FINE = 16  # steps of a token: lengths get a jitter of less than one to four tokens, in whole numbers
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


def pin_shards(source: Source, split: str, report: ReadReport, num_rows: int | None = None) -> list[PinnedShard]:
    """Finds the shards that have rows, in the order of their names, and counts what becomes of their rows.

    The rows of each shard are counted by reading them once, so that a bad row stops a run before it begins and the
    number of steps is known. The counts are kept in the cache for later launches. So is the number of examples before
    every 1,024th row: rows that are left out make it another number than that of the rows, and a reader that begins in
    the middle of a shard finds by it where to read.

    Args:
        num_rows: Takes the shards of the first examples, the last of them in part.

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
            count, so_far = 0, [0]  # examples of the shard, and those before every `STRIDE`th row as far as it was read
            for count, (_, row) in enumerate(source.read_file(file, split, counting) if has_rows else (), start=1):
                while row is not None and row.number >= len(so_far) * STRIDE:
                    so_far.append(count - 1)
            counts.append(count)
            before.append(so_far)
        found = {"rows": counts, "before": before, "counts": dict(counting.counts), "rejects": counting.rejects}
        (folder / "shards.json").write_text(json.dumps(found, default=str))

    found = cache_entry(
        cache_dir("shards") / name, build, lambda entry: json.loads((entry / "shards.json").read_text())
    )
    report.counts += Counter(found["counts"])
    report.rejects += found["rejects"]
    if empty := having.count(False):
        report.count(EMPTY, empty)
    kept: list[PinnedShard] = []
    left = num_rows
    for file, pin, size, before in zip(files, pins, found["rows"], found["before"], strict=True):
        if left is not None:
            size = min(size, left)
            left -= size
        if size:
            kept.append(PinnedShard(file, pin, size, before))
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


@dataclass(frozen=True, slots=True)
class Readers:
    """The stretches of an epoch, one for each reader; each reader contributes its part of every batch.

    The stretches depend on the data, the batch size and the number of readers. A process takes whole readers if there
    are enough of them, and otherwise shares one with other processes. So the number of processes decides who reads
    what, but not what a step learns from.

    Args:
        num_rows: Of the epoch.
        batch_size: Examples of a step over all readers.
        max_readers: There are no more than rows in a batch.
    """

    num_rows: int
    batch_size: int
    max_readers: int

    @property
    def count(self) -> int:
        return min(self.max_readers, self.batch_size, self.num_rows)

    @property
    def num_full_steps(self) -> int:
        return self.num_rows // self.batch_size

    def share(self, reader: int) -> int:
        """Counts the examples that a reader contributes to each full step."""
        return _share_of(self.batch_size, self.count, reader)

    def stretch(self, reader: int) -> tuple[int, int]:
        """Returns the places, in the order of the epoch, where a reader begins and ends."""
        begin = sum(self._length(before) for before in range(reader))
        return begin, begin + self._length(reader)

    def _length(self, reader: int) -> int:
        return self.num_full_steps * self.share(reader) + _share_of(self.num_rows % self.batch_size, self.count, reader)

    def of_process(self, rank: int, world_size: int) -> list[tuple[int, int, int]]:
        """Lists a process's readers, each with the process's number among those that share it, and their number."""
        if world_size <= self.count:
            return [(reader, 0, 1) for reader in range(rank, self.count, world_size)]
        reader = rank % self.count
        return [(reader, rank // self.count, _share_of(world_size, self.count, reader))]


def _share_of(amount: int, num_shares: int, share: int) -> int:
    """Computes the size of one share if an amount is dealt out in turn."""
    return amount // num_shares + (share < amount % num_shares)


@dataclass(frozen=True, slots=True)
class Part:
    """A reader's rows of one batch: some of those in its buffer."""

    columns: Columns
    index: NDArray[np.int64]  # of each row of the buffer its number in the corpus
    rows: NDArray[np.int64]


class Stream(IterableDataset):
    """The training batches of one process, as `BatchSampler` makes them, from any step on.

    Shards (`files_stand_alone`) are shared out among readers. Any other dataset is one piece with one reader, which
    every process reads, and of which each takes its share of each batch's rows.

    Args:
        options: `batch_size` alone sets the size of batches, so that the number of steps is known beforehand.
            `num_readers`: stretches that an epoch is cut into, so that up to as many processes read different rows.
            `num_buffer_rows`: rows that all readers together encode and shuffle at a time.
        num_rows: The first N examples, after filtering.
    """

    def __init__(
        self,
        source: Source,
        split: str,
        encoder: Encoder,
        options: DataOptions,
        *,
        rank: int = 0,
        world_size: int = 1,
        num_rows: int | None = None,
    ):
        assert options.batch_size is not None
        check_num_rows(num_rows)
        self.source, self.split, self.encoder, self.options = source, split, encoder, options
        self.batch_size, self.rank, self.world_size = options.batch_size, rank, world_size
        self.start = 0
        self.report = ReadReport(options.on_bad_row)
        self.shards = pin_shards(source, split, self.report, num_rows) if source.files_stand_alone else []
        if source.files_stand_alone:
            self.sizes = [shard.num_rows for shard in self.shards]
        else:
            sizes = source.sizes()
            if sizes is not None:
                self.sizes = [min(sizes[split], num_rows or sizes[split])]
            else:  # the files are read once for this, so that a bad row stops the run before training begins
                self.sizes = [sum(1 for _ in islice(source.read_split(split, self.report), num_rows))]
        self.begins = np.cumsum([0, *self.sizes])  # numbers of rows in the corpus
        self.num_rows = int(self.begins[-1])
        self.report.count("kept", self.num_rows)
        if not self.num_rows:
            raise UserError(f"{source.name} has no usable example in {split!r}", place=source.path)
        self.steps_per_epoch = -(-self.num_rows // self.batch_size)
        self.readers = Readers(self.num_rows, self.batch_size, options.num_readers if self.shards else 1)
        self.buffer_steps = max(1, options.num_buffer_rows // self.batch_size)  # that a full buffer lasts

    def fingerprint(self) -> str:
        """Hashes the files, or the shards' pins, in place of the records, which are never all in memory."""
        if not self.shards:
            return content_hash(self.source, self.split)
        return hashlib.blake2b(json.dumps(self.pins()).encode(), digest_size=16).hexdigest()

    def pins(self) -> dict[str, str]:
        """Identifies the shards for a checkpoint: training resumes only with the same ones."""
        return {f"{number} {s.file.name}": f"{s.num_rows} {s.pin}" for number, s in enumerate(self.shards)}

    def check_pins(self, pins: Mapping[str, str]) -> None:
        """Refuses to resume with other shards than those of a checkpoint.

        Raises:
            UserError: They differ.
        """
        here = self.pins()
        if pins != here:
            names = [name.partition(" ")[2] for name in {**pins, **here} if pins.get(name) != here.get(name)]
            problem = f"the shards differ from those that this training began with: {some_names(sorted(set(names)))}"
            hint = "put the old shards back, or train anew"
            raise UserError(problem, place=self.source.path, hint=hint)

    def __len__(self) -> int:
        return self.steps_per_epoch * self.options.num_epochs

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yields this process's rows of each batch from step `start` on."""
        skip, self.start = self.start, 0
        worker = get_worker_info()  # None in the main process
        if worker is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads do not survive a fork: the worker would hang
        number, num_workers = (worker.id, worker.num_workers) if worker else (0, 1)
        readers = self.readers.of_process(self.rank, self.world_size)
        first_epoch, skip = divmod(skip, self.steps_per_epoch)
        num_made = 0
        for epoch in range(first_epoch, self.options.num_epochs):
            parts_by_reader = [self._parts(epoch, reader, skip) for reader, _, _ in readers]
            for step, parts in enumerate(zip(*parts_by_reader, strict=True), start=skip):
                if num_made % num_workers == number:  # the loader takes batches from its workers in turn
                    shares = [part.rows[place::num] for part, (_, place, num) in zip(parts, readers, strict=True)]
                    taken = [(part, rows) for part, rows in zip(parts, shares, strict=True) if len(rows)]
                    if taken:
                        index = np.concatenate([part.index[rows] for part, rows in taken])
                    else:  # every process must run every step
                        taken, index = [(parts[0], np.array([0]))], np.array([PADDING_ROW])
                    columns = merge_rows([take_rows(part.columns, rows) for part, rows in taken])
                    is_full = step < self.readers.num_full_steps
                    num_rows = self.batch_size if is_full else self.num_rows % self.batch_size
                    yield collate_batch(self.encoder, columns, index, num_rows)
                num_made += 1
            skip = 0

    def _parts(self, epoch: int, reader: int, first_step: int) -> Iterator[Part]:
        """Yields a reader's parts of the batches of an epoch from a step on; earlier buffers are not encoded."""
        begin, end = self.readers.stretch(reader)
        first, skip = divmod(first_step, self.buffer_steps)
        size = self.buffer_steps * self.readers.share(reader)
        records, truncated = self._numbered_records(epoch, begin + first * size, end), Counter[str]()
        for number in range(first, -(-self.steps_per_epoch // self.buffer_steps)):
            chunk = list(islice(records, size))
            # A reader without rows for the last step repeats its last row, as padding.
            filled = chunk or list(self._numbered_records(epoch, end - 1, end))
            columns = self.encoder.encode([example for _, example in filled], truncated)
            index = np.array([row for row, _ in filled])
            batches: list[NDArray[np.int64]] = []
            if chunk:  # it is cut into parts of batches, in an order that is the same for all readers
                lengths, second = columns["length"], columns.get("second_length")
                assert not isinstance(lengths, Ragged) and not isinstance(second, Ragged)
                seed = self.options.seed
                jitter = np.random.default_rng([seed, epoch, number, reader]).integers(0, 4 * FINE, len(lengths))
                other = None if second is None else (second * FINE + jitter).astype(np.int32)
                fine, share = (lengths * FINE + jitter).astype(np.int32), self.readers.share(reader)
                parts = plan_batches(fine, share, None, None, other)
                num_full = min(self.buffer_steps, self.readers.num_full_steps - number * self.buffer_steps)
                order = np.random.default_rng([seed, epoch, number]).permutation(num_full)
                batches = [parts[place] for place in order] + parts[num_full:]
            num_steps = min(self.buffer_steps, self.steps_per_epoch - number * self.buffer_steps)
            batches += [np.array([], np.int64)] * (num_steps - len(batches))
            for rows in batches[skip:]:
                yield Part(columns, index, rows)
            skip = 0
        if reader == self.readers.of_process(self.rank, self.world_size)[0][0]:
            shown = ", ".join(f"{name} {count:,}" for name, count in truncated.items() if count) or "nothing truncated"
            place = f"{self.source.name}/{self.split}, epoch {epoch}, the first reader of this process"
            log.info("%s: %s", place, shown)

    def _numbered_records(self, epoch: int, begin: int, end: int) -> Iterator[tuple[int, Example]]:
        """Yields the examples between two places of an epoch, each with its number in the corpus."""
        passed = 0
        for piece in np.random.default_rng([self.options.seed, epoch]).permutation(len(self.sizes)):
            low, high = max(begin - passed, 0), min(end - passed, self.sizes[piece])
            if low < high:
                yield from enumerate(self._read(piece, low, high), start=int(self.begins[piece]) + low)
            passed += self.sizes[piece]

    def _read(self, piece: int, low: int, high: int) -> Iterator[Example]:
        """Yields some rows of a piece. Unlike `read_examples`, this does not check that ids are unique."""
        report = ReadReport(self.options.on_bad_row)
        if not self.shards:
            records = self.source.read_from(low, self.split, report)
            yield from (example for example, _ in islice(records, high - low))
            return
        shard = self.shards[piece]
        shard.check()  # it must be the same before and after
        given = low
        start, passed_over = shard.place_of(low)
        try:
            records = self.source.read_file(shard.file, self.split, report, start)
            for example, _ in islice(records, passed_over, passed_over + high - low):
                given += 1
                yield example
        except UserError:
            shard.check()  # a shard that was written meanwhile is reported as changed, not as broken
            raise
        shard.check()
        assert given == high, f"{shard.file} gave {given} rows of {high}"

    def keys(self) -> Iterator[RowKeys]:
        """Yields the keys of all records, a chunk at a time: another pass over the corpus, which keeps no text."""
        for piece, size in enumerate(self.sizes):
            records = self._read(piece, 0, size)
            while chunk := list(islice(records, KEYS)):
                yield row_keys(chunk)
