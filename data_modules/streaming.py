"""Training batches from a corpus that is never held in memory as a whole.

A window of records is generated or read, encoded, batched and discarded, so memory depends on the window alone.
Batches are ordered by length within a window and shuffled anew each epoch; the windows keep the order of the corpus, so
files sorted by class should be shuffled once before. A JSON list is read whole by its reader: JSON lines, TSV and CSV
are not.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, get_worker_info

from data_modules.data_options import DataOptions
from data_modules.encoding.batching import PADDING_ROW, collate_batch
from data_modules.encoding.encoder import Columns, Encoder, take_rows
from data_modules.encoding.encoding_cache import content_hash
from data_modules.encoding.ragged import Ragged
from data_modules.reading.dataset import Source
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.provenance.row_keys import RowKeys, row_keys
from faithkit.records import Example
from faithkit.training.batch_planning import plan_batches

WINDOW = 16_384  # records: enough for batches of one length to mix well, and small in memory

log = logging.getLogger("faithkit")


class Stream(IterableDataset):
    """The training batches of one process, as `BatchSampler` makes them, from any step on.

    Every process encodes the same windows and takes its share of each batch's rows. Each of several workers encodes all
    of them too: one is enough to prepare batches during training.

    Args:
        options: `batch_size` alone sets the size of batches, so that the number of steps is known beforehand.
        num_rows: The first N examples, after filtering.
        window: Records encoded at a time, rounded down to whole batches.
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
        window: int = WINDOW,
    ):
        assert options.batch_size is not None
        if num_rows is not None and num_rows < 1:
            raise UserError(f"num_rows is {num_rows}", hint="give 1 or more, or null for all")
        self.source, self.split, self.encoder, self.options = source, split, encoder, options
        self.batch_size, self.rank, self.world_size = options.batch_size, rank, world_size
        self.window = max(self.batch_size, window // self.batch_size * self.batch_size)
        self.start = 0
        self.report = ReadReport(options.on_bad_row)
        self.num_rows = self._count_rows(num_rows)
        self.report.count("kept", self.num_rows)
        if not self.num_rows:
            raise UserError(f"{source.name} has no usable example in {split!r}", place=source.path)
        self.steps_per_epoch = -(-self.num_rows // self.batch_size)

    def _count_rows(self, limit: int | None) -> int:
        if (sizes := self.source.sizes()) is not None:
            return min(sizes[self.split], limit or sizes[self.split])
        # The files are read once for this, so that a bad row stops the run before training begins.
        return sum(1 for _ in islice(self.source.read_split(self.split, self.report), limit))

    def fingerprint(self) -> str:
        """Hashes the files, in place of the records, which are never all in memory."""
        return content_hash(self.source, self.split)

    def pins(self) -> dict[str, str]:
        """Identifies the files for a checkpoint: training resumes only with the same ones. By default none."""
        return {}

    def check_pins(self, pins: Mapping[str, str]) -> None:
        """Refuses to resume with other files than those of a checkpoint.

        Raises:
            UserError: They differ.
        """
        return

    def __len__(self) -> int:
        return self.steps_per_epoch * self.options.num_epochs

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yields this process's rows of each batch from step `start` on."""
        skip, self.start = self.start, 0
        worker, num_workers = worker_place()
        step = 0
        first_epoch, skip = divmod(skip, self.steps_per_epoch)
        for epoch in range(first_epoch, self.options.num_epochs):
            number, skip = divmod(skip, self.window // self.batch_size)
            for begin, columns in self._windows(number):
                for rows in self._plan(columns, epoch, begin)[skip:]:
                    if step % num_workers == worker:  # the loader takes batches from its workers in turn
                        yield self._batch(columns, begin, rows)
                    step += 1
                skip = 0

    def _windows(self, number: int) -> Iterator[tuple[int, Columns]]:
        """Yields windows from `number` on, each with its first record's place; those before it are not encoded."""
        begin, truncated = number * self.window, Counter[str]()
        records = self._records(begin)
        while chunk := list(islice(records, self.window)):
            yield begin, self.encoder.encode(chunk, truncated)
            begin += len(chunk)
        self._log_truncated(f"streamed from record {number * self.window}", truncated)

    def _log_truncated(self, part: str, counts: Counter[str]) -> None:
        shown = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count) or "nothing truncated"
        log.info("%s/%s, %s: %s", self.source.name, self.split, part, shown)

    def _records(self, begin: int) -> Iterator[Example]:
        # Unlike `read_examples`, this does not check that ids are unique: memory would grow with the rows.
        records = self.source.read_from(begin, self.split, ReadReport(self.options.on_bad_row))
        return (example for example, _ in islice(records, self.num_rows - begin))

    def keys(self) -> Iterator[RowKeys]:
        """Yields the keys of all records, a window at a time: another pass over the corpus, which keeps no text."""
        records = self._records(0)
        while chunk := list(islice(records, self.window)):
            yield row_keys(chunk)

    def _plan(self, columns: Columns, epoch: int, begin: int) -> list[NDArray[np.int64]]:
        rng = np.random.default_rng([self.options.seed, epoch, begin // self.window])
        lengths, second = sequence_lengths(columns)
        return plan_batches(lengths, self.batch_size, None, rng, second)

    def _batch(self, columns: Columns, begin: int, rows: NDArray[np.int64]) -> dict[str, torch.Tensor]:
        share = rows[self.rank :: self.world_size]
        index = begin + share if len(share) else np.array([PADDING_ROW])
        taken = take_rows(columns, share if len(share) else rows[:1])
        return collate_batch(self.encoder, taken, index, len(rows))


def worker_place() -> tuple[int, int]:
    """Returns the number of this loader worker and the number of workers; 0 and 1 in the main process."""
    worker = get_worker_info()
    if worker is None:
        return 0, 1
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads do not survive a fork: the worker would hang
    return worker.id, worker.num_workers


def sequence_lengths(columns: Columns) -> tuple[NDArray[np.int32], NDArray[np.int32] | None]:
    """Returns the lengths of the rows' sequences and, if they have any, of their second sequences."""
    lengths, second = columns["length"], columns.get("second_length")
    assert not isinstance(lengths, Ragged) and not isinstance(second, Ragged)
    return lengths, second
