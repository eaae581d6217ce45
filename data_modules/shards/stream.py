"""Training batches from shards that never stand in memory or on the disk as a whole.

The rule of the order, by seed and epoch alone: the shards are permuted and put one behind the other; `Lanes` cuts this
sequence into stretches, one a reader; a reader shuffles its stretch by a buffer. It encodes as many rows as the buffer
holds, orders them by length, cuts them into its parts of batches, and gives these in a random order that is the same
for all readers, so that the parts of a batch are of like length. A step can be found again without the steps before
it: a training goes on in the middle of a shard from the number of its step.
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

from data_modules.batches import merge_rows
from data_modules.encoding.batching import PADDING_ROW
from data_modules.encoding.pairs import Columns, Encoder
from data_modules.encoding.ragged import Ragged
from data_modules.reading.dataset import Source
from data_modules.reading.rows import ReadReport
from data_modules.reading.shards import some_names
from data_modules.shards.lanes import NUM_BUFFER_ROWS, NUM_READERS, Lanes
from data_modules.shards.pinned import PinnedShard, first_rows, pin_shards
from faithkit.errors import UserError
from faithkit.provenance.row_keys import RowKeys, row_keys
from faithkit.records import Example
from faithkit.training.batching import plan_batches

KEYS = 16_384  # records whose keys are made at a time
FINE = 16  # steps of a token: lengths get a jitter of less than one to four tokens, in whole numbers

log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class Part:
    """A reader's rows of one batch: some of those that its buffer holds."""

    columns: Columns
    index: NDArray[np.int64]  # of each row of the buffer its number in the corpus
    rows: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64]) -> dict[str, object]:
        return {n: c.take(rows) if isinstance(c, Ragged) else c[rows] for n, c in self.columns.items()}


class ShardStream(IterableDataset):
    """The training batches of one process, beginning at any step.

    Args:
        batch_size: Examples of a step over all processes.
        num_rows: The first N examples, after filtering.
        num_readers: Stretches that an epoch is cut into: processes up to so many read apart.
        num_buffer_rows: Rows that all readers together encode and shuffle at a time.
    """

    def __init__(
        self,
        source: Source,
        split: str,
        encoder: Encoder,
        *,
        batch_size: int,
        num_epochs: int = 1,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        num_rows: int | None = None,
        on_bad_row: str = "stop",
        num_readers: int = NUM_READERS,
        num_buffer_rows: int = NUM_BUFFER_ROWS,
    ):
        self.source, self.split, self.encoder = source, split, encoder
        self.num_epochs, self.seed, self.rank, self.world_size = num_epochs, seed, rank, world_size
        self.on_bad_row, self.start = on_bad_row, 0
        self.report = ReadReport(on_bad_row)
        self.shards = first_rows(pin_shards(source, split, self.report), num_rows)
        self.num_rows = sum(shard.num_rows for shard in self.shards)
        self.report.count("kept", self.num_rows)
        if not self.num_rows:
            raise UserError(f"{source.name} has no usable example in {split!r}", place=source.path)
        self.begins = np.cumsum([0] + [shard.num_rows for shard in self.shards])  # numbers of rows in the corpus
        self.lanes = Lanes(self.num_rows, batch_size, num_readers)
        self.window = max(1, num_buffer_rows // batch_size)  # steps that a filled buffer lasts

    def __len__(self) -> int:
        return self.lanes.num_steps * self.num_epochs

    def pins(self) -> dict[str, str]:
        """Identifies the shards for a checkpoint: a training goes on with the same ones alone."""
        return {f"{number} {s.file.name}": f"{s.num_rows} {s.pin}" for number, s in enumerate(self.shards)}

    def check_pins(self, pins: Mapping[str, str] | None) -> None:
        """Refuses to go on with other shards than those of a checkpoint.

        Raises:
            UserError: They are others.
        """
        here = self.pins()
        if pins == here:
            return
        if pins is None:
            hint = "finish this run with the version that began it, or train anew"
            raise UserError("an older version began this run, and streamed in another order", hint=hint)
        names = [name.partition(" ")[2] for name in {**pins, **here} if pins.get(name) != here.get(name)]
        problem = f"the shards are not those that this training began with: {some_names(sorted(set(names)))}"
        hint = "put the old shards back, or train anew"
        raise UserError(problem, place=self.source.path, hint=hint)

    def fingerprint(self) -> str:
        """A hash of the shards' pins: the records are never all there."""
        return hashlib.blake2b(json.dumps(self.pins()).encode(), digest_size=16).hexdigest()

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yields this process's rows of each batch from step `start` on."""
        skip, self.start = self.start, 0
        worker = get_worker_info()
        turn, num_turns = (worker.id, worker.num_workers) if worker else (0, 1)
        if worker:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads did not survive the fork: it would wait
        own = self.lanes.of_process(self.rank, self.world_size)
        first_epoch, skip = divmod(skip, self.lanes.num_steps)
        made = 0
        for epoch in range(first_epoch, self.num_epochs):
            readers = [self._parts(epoch, lane, skip) for lane, _, _ in own]
            for step, parts in enumerate(zip(*readers, strict=True), start=skip):
                if made % num_turns == turn:  # the loader takes from its workers in turn
                    shares = [part.rows[place::sharing] for part, (_, place, sharing) in zip(parts, own, strict=True)]
                    yield self._batch(parts, shares, self.lanes.rows_in_step(step))
                made += 1
            skip = 0

    def _parts(self, epoch: int, lane: int, first_step: int) -> Iterator[Part]:
        """A reader's parts of the batches of an epoch from a step on; a buffer before it is not encoded."""
        begin, end = self.lanes.stretch(lane)
        first, skip = divmod(first_step, self.window)
        size = self.window * self.lanes.share(lane)
        records, cut = self._records(epoch, begin + first * size, end), Counter[str]()
        for window in range(first, -(-self.lanes.num_steps // self.window)):
            chunk = list(islice(records, size))
            # A reader that has nothing for the last step repeats its last row, as padding.
            filled = chunk or list(self._records(epoch, end - 1, end))
            columns = self.encoder.encode([example for _, example in filled], cut)
            index = np.array([number for number, _ in filled])
            batches = self._plan(columns, epoch, lane, window) if chunk else []
            num_steps = min(self.window, self.lanes.num_steps - window * self.window)
            batches += [np.array([], np.int64)] * (num_steps - len(batches))
            for rows in batches[skip:]:
                yield Part(columns, index, rows)
            skip = 0
        if lane == self.lanes.of_process(self.rank, self.world_size)[0][0]:
            said = ", ".join(f"{name} {count:,}" for name, count in cut.items() if count) or "nothing truncated"
            log.info("%s/%s, epoch %s, the first reader of this process: %s", self.source.name, self.split, epoch, said)

    def _plan(self, columns: Columns, epoch: int, lane: int, window: int) -> list[NDArray[np.int64]]:
        """Cuts the rows of a buffer into parts of batches, in an order that all readers have."""
        lengths, second = columns["length"], columns.get("second_length")
        assert not isinstance(lengths, Ragged) and not isinstance(second, Ragged)
        jitter = np.random.default_rng([self.seed, epoch, window, lane]).integers(0, 4 * FINE, len(lengths))
        other = None if second is None else (second * FINE + jitter).astype(np.int32)
        size = self.lanes.share(lane)
        parts = plan_batches((lengths * FINE + jitter).astype(np.int32), size, None, None, other)
        num_full = min(self.window, self.lanes.num_full_steps - window * self.window)
        order = np.random.default_rng([self.seed, epoch, window]).permutation(num_full)
        return [parts[place] for place in order] + parts[num_full:]

    def _records(self, epoch: int, begin: int, end: int) -> Iterator[tuple[int, Example]]:
        """The examples between two places of an epoch, each with its number in the corpus."""
        passed = 0
        for number in np.random.default_rng([self.seed, epoch]).permutation(len(self.shards)):
            shard = self.shards[number]
            low, high = max(begin - passed, 0), min(end - passed, shard.num_rows)
            if low < high:
                examples = self._read(shard, low, high)
                yield from enumerate(examples, start=int(self.begins[number]) + low)
            passed += shard.num_rows

    def _read(self, shard: PinnedShard, low: int, high: int) -> Iterator[Example]:
        """Some rows of a shard that is the same before and after."""
        shard.check()
        given = low
        start, passed_over = shard.place_of(low)
        try:
            # Ids are not checked to be unique, as `read_examples` does: remembering them would take memory by the row.
            records = self.source.read_file(shard.file, self.split, ReadReport(self.on_bad_row), start)
            for example, _ in islice(records, passed_over, passed_over + high - low):
                given += 1
                yield example
        except UserError:
            shard.check()  # a shard that was written meanwhile is no broken one
            raise
        shard.check()
        assert given == high, f"{shard.file} gave {given} rows of {high}"

    def keys(self) -> Iterator[RowKeys]:
        """The keys of all records, a portion at a time: one more pass over the shards, which keeps no text."""
        for shard in self.shards:
            records = self._read(shard, 0, shard.num_rows)
            while chunk := list(islice(records, KEYS)):
                yield row_keys(chunk)

    def _batch(
        self, parts: tuple[Part, ...], shares: list[NDArray[np.int64]], num_rows: int
    ) -> dict[str, torch.Tensor]:
        taken = [(part, rows) for part, rows in zip(parts, shares, strict=True) if len(rows)]
        if taken:
            index = np.concatenate([part.index[rows] for part, rows in taken])
        else:  # every process must run every step
            taken, index = [(parts[0], np.array([0]))], np.array([PADDING_ROW])
        columns = merge_rows([part.take(rows) for part, rows in taken])
        batch = {name: torch.from_numpy(array) for name, array in self.encoder.collate(columns).items()}
        return batch | {"index": torch.from_numpy(index), "num_rows": torch.tensor(num_rows)}
