"""Plans batches of sequences with similar lengths, so that there is almost no padding."""

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError

Batch = NDArray[np.int64]
BLOCK = 4  # batches that are sorted by the second length; of 2 to 12 this gave the least padding


def plan_batches(
    lengths: NDArray[np.int32],
    batch_size: int | None,
    max_tokens: int | None,
    rng: np.random.Generator | None,
    second: NDArray[np.int32] | None = None,
    family: NDArray[np.uint64] | None = None,
) -> list[Batch]:
    """Divides the examples, ordered by length, into batches.

    Args:
        lengths: Tokens of each example, over all its sequences.
        batch_size: The maximum number of examples in a batch.
        max_tokens: The maximum number of tokens in a batch, including padding.
        rng: Shuffles; None puts the longest batch first, so that memory runs out at once or never.
        second: Tokens of each example's second sequence, if it is padded separately (a decoder's). With a
            `batch_size`, examples of similar length are sorted by it.
        family: The same number for examples that belong in one batch, as far as both limits allow.
    """
    if batch_size is None and max_tokens is None:
        raise UserError("neither data.batch_size nor data.max_tokens is set", hint="set one of them")
    # A jitter of a few tokens mixes examples of similar length differently in each epoch, with almost no padding.
    jitter = rng.uniform(0, 4, len(lengths)) if rng is not None else np.zeros(len(lengths))
    order = np.argsort(-(lengths + jitter), kind="stable")
    if second is not None and batch_size is not None:
        order = _by_second(order, second + jitter, BLOCK * batch_size)
    if family is not None:
        order = _by_family(order, family)
    ordered = lengths[order]
    batches, begin = [], 0
    while begin < len(order):
        count = batch_size or len(order)
        if max_tokens is not None:
            most = max(1, min(count, max_tokens // int(ordered[begin])))
            count = _fitting(ordered[begin : begin + most], max_tokens)
        if family is not None:
            count = _whole_families(family[order[begin:]], count)
        batches.append(order[begin : begin + count])
        begin += count
    if rng is not None:
        rng.shuffle(batches)
    return batches


def _fitting(lengths: NDArray[np.int32], max_tokens: int) -> int:
    """Counts the first examples that fit into `max_tokens` when padded to the longest of them; at least one."""
    width = np.maximum.accumulate(lengths)
    return max(1, int(np.searchsorted(width * np.arange(1, len(width) + 1), max_tokens, side="right")))


def _by_second(order: Batch, second: NDArray[np.float64], block: int) -> Batch:
    """Sorts each block of the order by the second length, alternately ascending and descending."""
    blocks = [order[begin : begin + block] for begin in range(0, len(order), block)]
    return np.concatenate(
        [rows[np.argsort((-1) ** place * second[rows], kind="stable")] for place, rows in enumerate(blocks)]
    )


def _by_family(order: Batch, family: NDArray[np.uint64]) -> Batch:
    """Moves the examples of each family behind its first one."""
    _, first, number = np.unique(family[order], return_index=True, return_inverse=True)
    return order[np.argsort(first[number], kind="stable")]


def _whole_families(family: NDArray[np.uint64], count: int) -> int:
    """Reduces `count` so that no family is divided, unless the batch has only one family."""
    if count >= len(family) or family[count - 1] != family[count]:
        return count
    others = np.flatnonzero(family[:count] != family[count])
    return int(others[-1]) + 1 if len(others) else count
