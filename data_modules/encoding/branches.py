"""Lays out a causal model's batch so that what rows begin with alike is read once.

Rows of one family (responses to the same turn, answers from the same source) have prompts that differ at their end
alone. In the batch a family is one sequence: the beginning that all of its contexts share, then a branch for each row
(`faithkit.packing`). Every row is read, and learnt, as if it stood alone.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.causal import read_part, targets_of
from data_modules.encoding.ragged import Ragged, join_rows, offsets_of, steps_of

Ints = NDArray[np.int64]


def branched_batch(context: Ragged, response: Ragged, family: NDArray[np.uint64]) -> dict[str, NDArray[Any]]:
    """Makes the arrays of a batch: those of `targets_of`, and the model's input [1, tokens].

    part_lengths [parts]: of each sequence its beginning and its branches; a row without relatives is a single branch
    part_counts [sequences]: parts of each sequence
    target_at [tokens]: the place that predicts each target; the targets keep the order of the rows

    Args:
        family: The same number for rows that may share a beginning [rows].
    """
    whole = join_rows([context, read_part(response)])
    ids: list[NDArray[np.int32]] = []
    places: list[Ints] = []
    lengths: list[int] = []
    counts: list[int] = []
    start = np.zeros(len(whole), np.int64)  # where a row's first token would stand, were it not read with its relatives
    end = 0
    for rows in relatives(family):
        shared = _shared(context, rows)
        parts = [whole.row(rows[0])[:shared], *(whole.row(row)[shared:] for row in rows)]
        sizes = [len(part) for part in parts]
        start[rows] = end + offsets_of(np.array(sizes, np.int64))[1:-1] - shared
        end += sum(sizes)
        ids += parts
        places += [np.arange(shared), *(np.arange(shared, shared + size) for size in sizes[1:])]
        lengths += sizes
        counts.append(len(sizes))
    batch = targets_of(response)
    row = batch["target_row"]
    return batch | {
        "input_ids": np.concatenate(ids)[None].astype(np.int64),
        "position_ids": np.concatenate(places)[None],
        "part_lengths": np.array(lengths, np.int64),
        "part_counts": np.array(counts, np.int64),
        "target_at": start[row] + context.lengths[row] - 1 + steps_of(response.lengths),
    }


def relatives(family: NDArray[np.uint64]) -> list[Ints]:
    """Gives the rows of each family, in the order in which the families first occur."""
    _, first, number = np.unique(family, return_index=True, return_inverse=True)
    order = np.argsort(first[number], kind="stable")
    return np.split(order, np.flatnonzero(np.diff(first[number][order])) + 1)


def _shared(context: Ragged, rows: Ints) -> int:
    """Counts the tokens with which the contexts of these rows begin alike; a branch keeps one at least."""
    if len(rows) == 1:
        return 0
    width = int(context.lengths[rows].min()) - 1  # a row's first target is predicted by the last token of its context
    first = context.row(rows[0])[:width]
    different = np.zeros(width, bool)
    for row in rows[1:]:
        different |= context.row(row)[:width] != first
    return int(np.argmax(different)) if different.any() else width
