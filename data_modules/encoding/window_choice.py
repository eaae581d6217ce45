"""Chooses the windows of a long knowledge text that are read: those that share most tokens with the response.

A response takes the judgement of the window that supports it best, and a window without its words seldom is that one.
So a few windows give nearly the judgement of all, for a part of the work (speed/RESULTS.md, "Removed studies").
"""

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.ragged import Ragged

Ints = NDArray[np.int64]


def best_windows(said: Ragged, shown: Ragged, sizes: Ints, most: int) -> Ints:
    """Chooses at most `most` windows for each of R responses; of windows that share as much the first ones are taken.

    Args:
        said: Tokens of each response (R rows).
        shown: What each window shows of the knowledge (W rows), the windows of one response behind each other.
        sizes: Windows of each response. Shape (R,); they add up to W.

    Returns:
        The rows of `shown` that are kept, in their order.
    """
    keep: list[int] = []
    begin = 0
    for number, size in enumerate(sizes.tolist()):
        chosen = np.arange(begin, begin + size)
        if size > most:
            tokens = np.unique(said.row(number))
            shared = np.array([np.isin(tokens, shown.row(window)).sum() for window in chosen])
            chosen = np.sort(chosen[np.argsort(-shared, kind="stable")[:most]])
        keep += chosen.tolist()
        begin += size
    return np.array(keep, np.int64)
