"""Sequences of like lengths in one batch, so that almost nothing is padding."""

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError

Batch = NDArray[np.int64]


def plan_batches(
    lengths: NDArray[np.int32], batch_size: int | None, max_tokens: int | None, rng: np.random.Generator | None
) -> list[Batch]:
    """Cuts the examples, ordered by length, into batches.

    Args:
        batch_size: Most examples of a batch.
        max_tokens: Most tokens of a batch, padding counted.
        rng: Shuffles; None keeps the longest batch first, so that memory runs out at once or never.
    """
    if batch_size is None and max_tokens is None:
        raise UserError("neither data.batch_size nor data.max_tokens is set", mend="set one of them")
    # A jitter of a few tokens mixes examples of almost equal length anew each epoch, at almost no padding.
    jitter = rng.uniform(0, 4, len(lengths)) if rng is not None else np.zeros(len(lengths))
    order = np.argsort(-(lengths + jitter), kind="stable")
    ordered = lengths[order]
    batches, begin = [], 0
    while begin < len(order):
        count = batch_size or len(order)
        if max_tokens is not None:
            widest = int(ordered[begin]) + (4 if rng is not None else 0)  # the jitter may hide a longer one
            count = max(1, min(count, max_tokens // widest))
        batches.append(order[begin : begin + count])
        begin += count
    if rng is not None:
        rng.shuffle(batches)
    return batches
