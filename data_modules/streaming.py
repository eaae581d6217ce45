"""Training from a corpus that is never held: a window of records is made or read, encoded, batched and let go.

Memory depends on the window alone. Batches are ordered by length within a window and shuffled anew each epoch; the
windows keep the order of the corpus, so files sorted by class should be shuffled once before. A JSON list is read
whole by its reader: JSON lines, TSV and CSV are not.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, get_worker_info

from data_modules.encoding.batching import PADDING_ROW
from data_modules.encoding.cache import group_hash
from data_modules.encoding.pairs import Columns, Encoder
from data_modules.encoding.ragged import Ragged
from data_modules.reading.dataset import File, Source, Together, _guarded
from data_modules.reading.rows import ReadReport, Row, read_rows
from faithkit.errors import UserError
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
        if sizes := getattr(self.source, "sizes", None):
            count = min(sizes()[self.split], num_rows or sizes()[self.split])
        else:  # the files are read once for this, so that a bad row stops the run before it has begun
            count = sum(1 for _ in islice(_read(self.source, self.split, self.report), num_rows))
        self.report.count("kept", count)
        if not count:
            raise UserError(f"{self.source.name} has no usable example in {self.split!r}", place=self.source.path)
        return count

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
        if generate := getattr(self.source, "generate", None):
            yield from generate(self.split, begin, self.num_rows)
        else:
            yield from islice(_read(self.source, self.split, ReadReport(self.on_bad_row)), begin, self.num_rows)

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


def _read(source: Source, split: str, report: ReadReport) -> Iterator[Example]:
    # As `read_examples`, but ids are not checked to be unique: remembering them would take memory by the row.
    if read_split := getattr(source, "read_split", None):
        yield from read_split(split, report)
        return
    for file in source.files()[split]:
        for row in read_rows(file, report) if isinstance(file, Path) else file.rows():
            yield from _guarded(source, row, split, report)


@dataclass(frozen=True)
class PartSource:
    """The groups of a source's split that fall to one part of a division, as a source of its own."""

    source: Source
    part: str
    fractions: Mapping[str, float]
    seed: int

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def ids_repeat(self) -> bool:
        return getattr(self.source, "ids_repeat", False)

    def files(self) -> Mapping[str, Sequence[File]]:
        return self.source.files()

    def layout(self) -> Mapping[str, Any]:
        return {**self.source.layout(), "part": [self.part, dict(self.fractions), self.seed]}

    @property
    def read_split(self) -> Together | None:
        if inner := getattr(self.source, "read_split", None):
            return lambda split, report: self._kept(inner(split, report), report)
        return None

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        return self._kept(self.source.examples(row, split, report), report)

    def _kept(self, examples: Iterator[Example], report: ReadReport) -> Iterator[Example]:
        for example in examples:
            groups = np.array([group_hash(example.group)], np.uint64)
            if len(divide_groups(groups, self.fractions, self.seed)[self.part]):
                yield example
            else:
                report.count("in another part of the division")


def divide_groups(
    groups: NDArray[np.uint64], fractions: Mapping[str, float], seed: int
) -> dict[str, NDArray[np.int64]]:
    """The rows of each part, by their groups' hashes; what the fractions leave is `train`."""
    mixed = groups ^ np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    # Multiplying by an odd constant spreads the bits; the upper 53 make a uniform number in 0..1.
    place = (((mixed * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(11)).astype(np.float64)) / 2**53
    result, low = {}, 0.0
    for name, fraction in fractions.items():
        high = low + fraction
        result[name] = np.flatnonzero((place >= low) & (place < high))
        low = high
    result["train"] = np.flatnonzero(place >= low)
    return result


def stream_parts(
    source: Source, split: str | None, fractions: Mapping[str, float], seed: int
) -> dict[str, tuple[Source, str]]:
    """Training, validation and test, each as a source and the official split to read of it.

    Raises:
        UserError: There is nothing to train on, or a corpus without files would have to be divided.
    """
    official = list(source.files()) or ["train", "validation", "test"]
    base = split or next((name for name in ("train", "all") if name in official), None)
    if base is None or base not in official:
        have = ", ".join(official)
        raise UserError(f"no split {base or 'train'!r} to stream", place=source.path, hint=f"set data.split: {have}")
    missing = {name: fraction for name, fraction in fractions.items() if split is not None or name not in official}
    if missing and not source.files():
        raise UserError(f"{source.name} has no files: streaming cannot divide it", hint="set data.split=null")
    parts = {name: (source, name) for name in fractions if name not in missing}
    for name in (*missing, "train"):
        parts[name] = (PartSource(source, name, missing, seed) if missing else source, base)
    return parts
