"""Plans batches of sequences with similar lengths, so that there is almost no padding, and runs models on them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
        # Each block is sorted by the second length, alternately ascending and descending.
        size, padded = BLOCK * batch_size, second + jitter
        blocks = [order[begin : begin + size] for begin in range(0, len(order), size)]
        order = np.concatenate(
            [rows[np.argsort((-1) ** place * padded[rows], kind="stable")] for place, rows in enumerate(blocks)]
        )
    if family is not None:
        _, first, number = np.unique(family[order], return_index=True, return_inverse=True)
        order = order[np.argsort(first[number], kind="stable")]  # behind the first one of the family
    ordered, families = lengths[order], None if family is None else family[order]
    batches, begin = [], 0
    while begin < len(order):
        count = batch_size or len(order)
        if max_tokens is not None:  # those that fit when padded to the longest of them, at least one
            most = max(1, min(count, max_tokens // int(ordered[begin])))
            width = np.maximum.accumulate(ordered[begin : begin + most])
            count = int(np.searchsorted(width * np.arange(1, len(width) + 1), max_tokens, side="right"))
        end = begin + max(1, count)
        if families is not None and end < len(order) and families[end - 1] == families[end]:
            others = np.flatnonzero(families[begin:end] != families[end])
            end = begin + int(others[-1]) + 1 if len(others) else end  # divides a family only if it is alone
        batches.append(order[begin:end])
        begin = end
    if rng is not None:
        rng.shuffle(batches)
    return batches


@torch.no_grad()  # sharded weights need version counters, which inference mode leaves out
def run_batches(
    lengths: NDArray[Any], batch_tokens: int, run: Callable[[Batch], Tensor]
) -> list[tuple[Batch, NDArray[np.float32]]]:
    """Runs a model on sequences in batches of similar lengths; returns each batch's sequences and outputs, in fp32.

    Args:
        lengths: Tokens of each sequence.
        batch_tokens: Tokens of a batch, including padding.
        run: Computes the outputs of the sequences with these numbers.
    """
    batches = plan_batches(lengths.astype(np.int32), None, batch_tokens, None)
    computed = [run(batch).float() for batch in batches]
    # Read after the last batch has started, so that a GPU does not wait between batches.
    return [(batch, output.cpu().numpy()) for batch, output in zip(batches, computed, strict=True)]


def pad_rows(ids: Sequence[NDArray[np.int32]], device: Any, pad_id: int | None = None) -> tuple[Tensor, Tensor]:
    """Pads token ids; returns them and which of them are no padding [B, width].

    Args:
        pad_id: Pads on the right with this token. Without it each row is padded on the left with its first token,
            because the repetition penalty of transformers counts padding as text.
    """
    lengths, columns = np.array([len(row) for row in ids]), np.arange(max(len(row) for row in ids))
    is_token = columns >= len(columns) - lengths[:, None] if pad_id is None else columns < lengths[:, None]
    fill = [row[0] if pad_id is None else pad_id for row in ids]
    padded = np.repeat(np.array(fill, np.int64)[:, None], len(columns), axis=1)
    padded[is_token] = np.concatenate(ids)
    return torch.from_numpy(padded).to(device), torch.from_numpy(is_token).to(device)
