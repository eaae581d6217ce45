"""Batches of examples of similar length, shuffled by seed and epoch, the same on every process.

A batch is planned for all processes at once, and each takes its share of the rows. So the number of processes changes
neither the batches nor, with the loss averaged over the whole batch, the gradients; and no row is lost or doubled.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from data_modules.encoding.encoder import Columns, Encoder, Subset, merge_rows, take_rows
from faithkit.fast import Batch, plan_batches

PADDING_ROW = -1  # the row of a share that would be empty: every process must run every step


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one dataset in a mix: `weight` 2 takes each twice an epoch, 0.5 another half every epoch."""

    indices: Batch
    weight: float = 1.0

    def draw(self, rng: np.random.Generator) -> Batch:
        """Draws the rows of one epoch."""
        size = len(self.indices)
        num_repeats, num_sampled = divmod(round(self.weight * size), max(1, size))
        return np.concatenate([np.repeat(self.indices, num_repeats), rng.permutation(self.indices)[:num_sampled]])


class BatchSampler:
    """The batches of one process: all epochs as one sequence, which can begin at any step (`start`).

    Lightning sees training as one long epoch, so that there is a single way to resume: go on at step k.

    Args:
        lengths: Tokens of each example. Shape (examples,).
        parts: The rows that an epoch is drawn from.
        batch_size: The most rows of a batch, over all processes.
        max_tokens: The most tokens of a batch, padding included.
        shuffle: Makes new batches each epoch (training) rather than always the same (evaluation).
        rank: The number of this process, of `world_size`.
        second: Tokens of each example's second sequence, where it has one (`plan_batches`).
        family: The same number for examples that should share a batch, where their encoder says so.
    """

    def __init__(
        self,
        lengths: NDArray[np.int32],
        parts: list[Part],
        *,
        batch_size: int | None,
        max_tokens: int | None,
        shuffle: bool,
        num_epochs: int = 1,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        second: NDArray[np.int32] | None = None,
        family: NDArray[np.uint64] | None = None,
    ):
        self.lengths, self.second, self.parts, self.shuffle, self.seed = lengths, second, parts, shuffle, seed
        self.family = family
        self.batch_size, self.max_tokens, self.num_epochs = batch_size, max_tokens, num_epochs
        self.rank, self.world_size = rank, world_size
        self.start = 0
        # With a token budget epochs differ in their number of batches, so each is planned once to count them.
        self.steps_of_epoch = [len(self.plan(epoch)) for epoch in range(num_epochs)]

    def plan(self, epoch: int) -> list[Batch]:
        """Plans an epoch: its batches as rows of the data, each with the rows of all processes."""
        rng = np.random.default_rng([self.seed, epoch]) if self.shuffle else None
        rows = np.concatenate([part.draw(rng) if rng is not None else part.indices for part in self.parts])
        second, family = (None if column is None else column[rows] for column in (self.second, self.family))
        # The plan's batches index `rows`, which may hold a row more than once.
        plan = plan_batches(self.lengths[rows], self.batch_size, self.max_tokens, rng, second, family)
        return [rows[batch] for batch in plan]

    def __len__(self) -> int:
        return sum(self.steps_of_epoch)

    def __iter__(self) -> Iterator[tuple[Batch, int]]:
        """Yields this process's rows of each batch, with the number of rows of the whole batch."""
        skip, self.start = self.start, 0  # only the first pass resumes
        for epoch, num_steps in enumerate(self.steps_of_epoch):
            if skip >= num_steps:
                skip -= num_steps
                continue
            for batch in self.plan(epoch)[skip:]:
                share = batch[self.rank :: self.world_size]
                if self.family is not None:  # rows of a family are adjacent, so each process takes a stretch
                    share = np.array_split(batch, self.world_size)[self.rank]
                yield (share if len(share) else np.array([PADDING_ROW])), len(batch)
            skip = 0


class Batches(Dataset):
    """Builds whole batches from several subsets: an item is requested by all of its rows at once."""

    def __init__(self, subsets: Sequence[Subset], encoder: Encoder):
        self.subsets, self.encoder = list(subsets), encoder
        self.starts = np.cumsum([0] + [len(subset) for subset in self.subsets])

    def lengths(self, column: str = "length") -> NDArray[Any]:
        """Returns a column of numbers of all examples."""
        return np.concatenate([np.asarray(s.encoded.columns[column])[s.indices] for s in self.subsets])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, request: tuple[NDArray[np.int64], int]) -> dict[str, torch.Tensor]:
        rows, num_rows = request
        present = np.maximum(rows, 0)  # a padding row repeats the first example; its index distinguishes it
        subset_of_row = np.searchsorted(self.starts, present, side="right") - 1
        # `columns` returns the rows grouped by subset: the indices are put in the same order.
        order = np.argsort(subset_of_row, kind="stable")
        return collate_batch(self.encoder, self.columns(present), rows[order], num_rows)

    def columns(self, rows: NDArray[np.int64]) -> Columns:
        """Returns the cached columns of some rows, grouped by subset (ascending rows keep their order)."""
        subset_of_row = np.searchsorted(self.starts, rows, side="right") - 1
        parts = []
        for number in np.unique(subset_of_row).tolist():
            subset, wanted = self.subsets[number], rows[subset_of_row == number]
            parts.append(take_rows(subset.encoded.columns, subset.indices[wanted - self.starts[number]]))
        return merge_rows(parts)


def collate_batch(
    encoder: Encoder, columns: Columns, index: NDArray[np.int64], num_rows: int
) -> dict[str, torch.Tensor]:
    """Makes a batch of tensors.

    Args:
        columns: Of this process's rows.
        index: The number of each row in the data; PADDING_ROW for padding.
        num_rows: Rows of the whole batch, over all processes.
    """
    batch = {name: torch.from_numpy(array) for name, array in encoder.collate(columns).items()}
    return batch | {"index": torch.from_numpy(index), "num_rows": torch.tensor(num_rows)}
