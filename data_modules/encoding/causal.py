"""Lays out batches for causal language models: each row a context that is read and a response that is learnt."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.ragged import Ragged, join_rows, pad_rows, steps_of


def targets_of(response: Ragged) -> dict[str, NDArray[Any]]:
    """Makes the targets, flat, response by response.

    `target` [tokens] holds the responses' tokens with their eos, `target_row` the row of each.
    """
    row = np.repeat(np.arange(len(response)), response.lengths)
    return {"target": response.values.astype(np.int64), "target_row": row}


def read_part(response: Ragged) -> Ragged:
    """Gives the responses without their last token, the eos: it predicts nothing and is not read."""
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
