"""Divides the rows of an epoch among readers, so that processes read apart and make the batches of one.

An epoch is its shards in an order of their own, one behind the other. It is cut into as many stretches as there are
readers, and each reader gives its part of every batch. The stretches depend on the data, the batch size and the number
of readers; a process takes whole readers where there are enough of them, and shares one with others where there are
not. So the number of processes decides who reads, never what a step learns from.
"""

from dataclasses import dataclass

NUM_READERS, NUM_BUFFER_ROWS = 8, 16_384  # enough that batches mix well, and few enough to forget about memory


@dataclass(frozen=True, slots=True)
class Lanes:
    """The stretches of an epoch.

    Args:
        num_rows: Of the epoch.
        batch_size: Examples of a step over all readers.
        num_readers: The most; there are no more than rows in a batch.
    """

    num_rows: int
    batch_size: int
    num_readers: int

    @property
    def count(self) -> int:
        return min(self.num_readers, self.batch_size, self.num_rows)

    @property
    def num_steps(self) -> int:
        return -(-self.num_rows // self.batch_size)

    @property
    def num_full_steps(self) -> int:
        """Steps before the last one, where that is a smaller one."""
        return self.num_rows // self.batch_size

    def rows_in_step(self, step: int) -> int:
        """Examples of a step over all readers."""
        return self.batch_size if step < self.num_full_steps else self.num_rows % self.batch_size

    def share(self, lane: int) -> int:
        """Examples that a reader gives to each full step."""
        return _deal(self.batch_size, self.count, lane)

    def stretch(self, lane: int) -> tuple[int, int]:
        """The places, in the order of the epoch, where a reader begins and ends."""
        begin = sum(self._length(before) for before in range(lane))
        return begin, begin + self._length(lane)

    def _length(self, lane: int) -> int:
        return self.num_full_steps * self.share(lane) + _deal(self.num_rows % self.batch_size, self.count, lane)

    def of_process(self, rank: int, world_size: int) -> list[tuple[int, int, int]]:
        """The readers of a process, each with the process's number among those that share the reader."""
        if world_size <= self.count:
            return [(lane, 0, 1) for lane in range(rank, self.count, world_size)]
        lane = rank % self.count
        return [(lane, rank // self.count, _deal(world_size, self.count, lane))]


def _deal(amount: int, hands: int, hand: int) -> int:
    """Computes the share of one of several when so much is dealt out in turn."""
    return amount // hands + (hand < amount % hands)
