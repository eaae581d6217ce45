"""Training batches from a corpus that never stands in memory as a whole.

A window of records is made or read, encoded, batched and let go.

Memory depends on the window alone. Batches are ordered by length within a window and shuffled anew each epoch; the
windows keep the order of the corpus, so files sorted by class should be shuffled once before. A JSON list is read
whole by its reader: JSON lines, TSV and CSV are not.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, get_worker_info

from data_modules.encoding.batching import PADDING_ROW
from data_modules.encoding.cache import content_hash
from data_modules.encoding.pairs import Columns, Encoder
from data_modules.encoding.ragged import Ragged
from data_modules.reading.dataset import Source
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.provenance.row_keys import RowKeys, row_keys
from faithkit.records import Example
from faithkit.training.batching import plan_batches

WINDOW = 16_384  # records: enough that batches of one length mix well, and few enough to forget about memory

log = logging.getLogger("faithkit")


class Stream(IterableDataset):
    """The training batches of one process, as `BatchSampler` gives them, beginning at any step.

    Every process encodes the same windows and takes its share of each batch's rows. Several workers each encode all
    of them too: one is enough to prepare batches beside the training.

    Args:
        batch_size: Examples of a step over all processes; with it alone, the number of steps is known beforehand.
        num_rows: The first N examples, after filtering.
        window: Records encoded at a time, rounded down to whole batches.
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
        window: int = WINDOW,
    ):
        self.source, self.split, self.encoder = source, split, encoder
        self.batch_size, self.num_epochs, self.seed = batch_size, num_epochs, seed
        self.rank, self.world_size, self.on_bad_row = rank, world_size, on_bad_row
        self.window = max(batch_size, window // batch_size * batch_size)
        self.start = 0
        self.report = ReadReport(on_bad_row)
        self.num_rows = self._count(num_rows)
        self.steps_of_epoch = -(-self.num_rows // batch_size)

    def _count(self, num_rows: int | None) -> int:
        if num_rows is not None and num_rows < 1:
            raise UserError(f"num_rows is {num_rows}", hint="give 1 or more, or null for all")
        if (sizes := self.source.sizes()) is not None:
            count = min(sizes[self.split], num_rows or sizes[self.split])
        else:  # the files are read once for this, so that a bad row stops the run before it has begun
            count = sum(1 for _ in islice(self.source.read_split(self.split, self.report), num_rows))
        self.report.count("kept", count)
        if not count:
            raise UserError(f"{self.source.name} has no usable example in {self.split!r}", place=self.source.path)
        return count

    def fingerprint(self) -> str:
        """The hash of the files: the records are never all there."""
        return content_hash(self.source, self.split)

    def __len__(self) -> int:
        return self.steps_of_epoch * self.num_epochs

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yields this process's rows of each batch from step `start` on."""
        skip, self.start = self.start, 0
        worker = get_worker_info()
        turn, num_turns = (worker.id, worker.num_workers) if worker else (0, 1)
        if worker:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads did not survive the fork: it would wait
        step = 0
        first_epoch, skip = divmod(skip, self.steps_of_epoch)
        for epoch in range(first_epoch, self.num_epochs):
            number, skip = divmod(skip, self.window // self.batch_size)
            for begin, columns in self._windows(number):
                for rows in self._plan(columns, epoch, begin)[skip:]:
                    if step % num_turns == turn:  # the loader takes from its workers in turn
                        yield self._batch(columns, begin, rows)
                    step += 1
                skip = 0

    def _windows(self, number: int) -> Iterator[tuple[int, Columns]]:
        """Windows from `number` on, each with its first record's place; those before it are not encoded."""
        begin, cut = number * self.window, Counter[str]()
        records = self._records(begin)
        while chunk := list(islice(records, self.window)):
            yield begin, self.encoder.encode(chunk, cut)
            begin += len(chunk)
        said = ", ".join(f"{name} {count:,}" for name, count in cut.items() if count) or "nothing truncated"
        log.info("%s/%s, streamed from record %s: %s", self.source.name, self.split, number * self.window, said)

    def _records(self, begin: int) -> Iterator[Example]:
        # Ids are not checked to be unique, as `read_examples` does: remembering them would take memory by the row.
        records = self.source.read_from(begin, self.split, ReadReport(self.on_bad_row))
        return (example for example, _ in islice(records, self.num_rows - begin))

    def keys(self) -> Iterator[RowKeys]:
        """The keys of all records, a window at a time: one more pass over the corpus, which keeps no text."""
        records = self._records(0)
        while chunk := list(islice(records, self.window)):
            yield row_keys(chunk)

    def _plan(self, columns: Columns, epoch: int, begin: int) -> list[NDArray[np.int64]]:
        rng = np.random.default_rng([self.seed, epoch, begin // self.window])
        lengths, second = columns["length"], columns.get("second_length")
        assert not isinstance(lengths, Ragged) and not isinstance(second, Ragged)
        return plan_batches(lengths, self.batch_size, None, rng, second)

    def _batch(self, columns: Columns, begin: int, rows: NDArray[np.int64]) -> dict[str, torch.Tensor]:
        share = rows[self.rank :: self.world_size]
        index = begin + share if len(share) else np.array([PADDING_ROW])
        present = share if len(share) else rows[:1]
        taken = {n: c.take(present) if isinstance(c, Ragged) else c[present] for n, c in columns.items()}
        batch = {name: torch.from_numpy(array) for name, array in self.encoder.collate(taken).items()}
        return batch | {"index": torch.from_numpy(index), "num_rows": torch.tensor(len(rows))}
