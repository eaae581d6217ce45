"""Cuts a dialogue's history to what fits beside its knowledge."""

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.ragged import offsets_of


def fit_history(lengths: NDArray[np.int64], num_turns: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """Decides how many tokens of each turn are kept, counted from its end.

    The newest turns are kept first, each whole or not at all; if even the newest does not fit, its end is kept.

    Args:
        lengths: Tokens of each turn with its marker: the turns of all rows, oldest first, one row behind the other.
        num_turns: Turns of each row.
        room: Tokens that each row has for its history.
    """
    ends = offsets_of(num_turns)[1:]
    so_far = offsets_of(lengths)
    space = np.repeat(room, num_turns)
    until_end = np.repeat(so_far[ends], num_turns) - so_far[:-1]  # of a turn and all that follow it in its row
    kept = np.where(until_end <= space, lengths, 0)
    newest = np.arange(1, len(lengths) + 1) == np.repeat(ends, num_turns)
    # Room of 1 would hold the marker alone, which says nothing.
    return np.where(newest & (lengths > space) & (space >= 2), space, kept)
