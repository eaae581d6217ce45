"""Which examples form which batch: similar lengths together, shuffled by seed and epoch, the same on every process.

A batch is planned for all processes at once and each takes its share of the rows. So the number of processes changes
neither the batches nor, with the loss averaged over the whole batch, the gradients; and nothing is lost or doubled.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faithkit.training.batching import Batch, plan_batches

PADDING_ROW = -1  # stands in a share that would be empty: every process must run every step


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one dataset in a mix: `weight` 2 takes each twice an epoch, 0.5 a new half every epoch."""

    indices: Batch
    weight: float = 1.0

    def draw(self, rng: np.random.Generator) -> Batch:
        """The rows of one epoch."""
        whole, rest = divmod(round(self.weight * len(self.indices)), max(1, len(self.indices)))
        return np.concatenate([np.repeat(self.indices, whole), rng.permutation(self.indices)[:rest]])


class BatchSampler:
    """The batches of one process: all epochs as one sequence, which can begin at any step.

    Training is one long pass for Lightning, so that a resume has a single case: go on at step k.

    Args:
        lengths: Tokens of each example.
        second: Those of its second sequence, where it has one (`plan_batches`).
        parts: What an epoch is drawn from.
        shuffle: New batches each epoch (training), or always the same (evaluation).
        rank: This process, of `world_size`.
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
    ):
        self.lengths, self.second, self.parts, self.shuffle, self.seed = lengths, second, parts, shuffle, seed
        self.batch_size, self.max_tokens, self.num_epochs = batch_size, max_tokens, num_epochs
        self.rank, self.world_size = rank, world_size
        self.start = 0
        # Epochs may differ in length where a token budget cuts them: each is planned once to be counted.
        self.steps_of_epoch = [len(self.plan(epoch)) for epoch in range(num_epochs)]

    def plan(self, epoch: int) -> list[Batch]:
        """All batches of an epoch, of all processes."""
        rng = np.random.default_rng([self.seed, epoch]) if self.shuffle else None
        rows = np.concatenate([part.draw(rng) if rng is not None else part.indices for part in self.parts])
        second = None if self.second is None else self.second[rows]
        plan = plan_batches(self.lengths[rows], self.batch_size, self.max_tokens, rng, second)
        return [rows[batch] for batch in plan]

    def __len__(self) -> int:
        return sum(self.steps_of_epoch)

    def __iter__(self) -> Iterator[tuple[Batch, int]]:
        """Yields this process's rows of a batch, and how many rows the whole batch has."""
        skip, self.start = self.start, 0
        for epoch, num_steps in enumerate(self.steps_of_epoch):
            if skip >= num_steps:
                skip -= num_steps
                continue
            for batch in self.plan(epoch)[skip:]:
                share = batch[self.rank :: self.world_size]
                yield (share if len(share) else np.array([PADDING_ROW])), len(batch)
            skip = 0
