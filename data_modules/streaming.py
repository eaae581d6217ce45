"""Training batches from a corpus that is never held in memory or on the disk as a whole.

The order depends on seed and epoch alone: the pieces of the corpus (its shards, or all of it) are permuted and
concatenated; `Readers` cuts this sequence into stretches, one for each reader; a reader shuffles its stretch by a
buffer. It encodes as many rows as the buffer holds, orders them by length, cuts them into its parts of batches, and
yields these in a random order that is the same for all readers, so that the parts of a batch are of similar length. A
step can be found without the steps before it: training resumes in the middle of a piece from the number of its step.

Files sorted by class should be shuffled once before. A JSON list is read whole by its reader: JSON lines, TSV and CSV
are not.
"""

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, get_worker_info

from data_modules.data_options import DataOptions
from data_modules.encoding.batching import PADDING_ROW, collate_batch
from data_modules.encoding.encoder import Columns, Encoder, merge_rows, take_rows
from data_modules.encoding.ragged import Ragged
from data_modules.pinned_shards import PinnedShard, first_rows, pin_shards
from data_modules.reading.dataset import Source, content_hash
from data_modules.reading.rows import ReadReport
from data_modules.reading.shards import some_names
from faithkit.errors import UserError
from faithkit.fast import plan_batches
from faithkit.provenance.row_keys import RowKeys, row_keys
from faithkit.records import Example

KEYS = 16_384  # records per call of `row_keys`
FINE = 16  # steps of a token: lengths get a jitter of less than one to four tokens, in whole numbers

log = logging.getLogger("faithkit")


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
        if num_rows is not None and num_rows < 1:
            raise UserError(f"num_rows is {num_rows}", hint="give 1 or more, or null for all")
        self.source, self.split, self.encoder, self.options = source, split, encoder, options
        self.batch_size, self.rank, self.world_size = options.batch_size, rank, world_size
        self.start = 0
        self.report = ReadReport(options.on_bad_row)
        self.shards: list[PinnedShard] = []
        if source.files_stand_alone:
            self.shards = first_rows(pin_shards(source, split, self.report), num_rows)
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
