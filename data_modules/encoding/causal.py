"""Lays out batches for causal language models: each row a context that is read and a response that is learnt."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.ragged import Ragged, join_rows, offsets_of, pad_rows, steps_of


def targets_of(response: Ragged) -> dict[str, NDArray[Any]]:
    """Makes the targets, flat, response by response.

    `target` [tokens] holds the responses' tokens with their eos, `target_row` the row of each.
    """
    row = np.repeat(np.arange(len(response)), response.lengths)
    return {"target": response.values.astype(np.int64), "target_row": row}


def read_part(response: Ragged) -> Ragged:
    """Returns the responses without their last token, the eos: it predicts nothing and is not read."""
    count = len(response)
    return response.slice_rows(np.arange(count), np.zeros(count, np.int64), response.lengths - 1)


def causal_batch(context: Ragged, response: Ragged, *, pad_id: int, packed: bool) -> dict[str, NDArray[Any]]:
    """Makes the arrays of a batch: those of `targets_of`, and the model's input.

    `target_at` [tokens] is the place that predicts each target, counted over the model's whole output.

    packed: input_ids, position_ids [1, tokens], sequence_lengths [rows]
    padded: input_ids, attention_mask [rows, width]
    """
    batch = targets_of(response)
    row, sequence = batch["target_row"], join_rows([context, read_part(response)])
    place = context.lengths[row] - 1 + steps_of(response.lengths)  # the context's last token predicts the first
    if not packed:
        batch |= padded_inputs(sequence, pad_id)
        return batch | {"target_at": row * batch["input_ids"].shape[1] + place}
    return batch | {
        "input_ids": sequence.values[None].astype(np.int64),
        "position_ids": steps_of(sequence.lengths)[None],
        "sequence_lengths": sequence.lengths,
        "target_at": sequence.offsets[row] + place,
    }


def padded_inputs(rows: Ragged, pad_id: int) -> dict[str, NDArray[Any]]:
    """Pads rows to a rectangle, with the mask of what is read."""
    inside = np.arange(int(rows.lengths.max(initial=0))) < rows.lengths[:, None]
    return {"input_ids": pad_rows(rows, pad_id), "attention_mask": inside.astype(np.int64)}


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
    start = np.zeros(len(whole), np.int64)  # the place that a row's first token would have if the row were read alone
    end = 0
    # The rows of each family, in the order in which the families first occur.
    _, first, number = np.unique(family, return_index=True, return_inverse=True)
    order = np.argsort(first[number], kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(first[number][order])) + 1):
        shared = 0  # tokens with which the contexts of these rows begin alike
        if len(rows) > 1:
            # A branch keeps a token at least: a row's first target is predicted by the last token of its context.
            width = int(context.lengths[rows].min()) - 1
            begins = np.stack([context.row(row)[:width] for row in rows])
            different = (begins != begins[0]).any(0)
            shared = int(np.argmax(different)) if different.any() else width
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
