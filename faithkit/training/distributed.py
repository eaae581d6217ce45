"""The few things that processes tell each other outside of Lightning's own strategies."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch.distributed
from numpy.typing import NDArray

T = TypeVar("T")


def gather_objects(mine: T) -> list[T]:
    """What every process has, in the order of their ranks."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [mine]
    shares: list[T] = [mine] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(shares, mine)
    return shares


def gather_rows(indices: Sequence[NDArray], values: Sequence[NDArray]) -> tuple[NDArray, NDArray]:
    """The rows of all processes, each index once, in the order of the indices; negative indices are padding."""
    index = np.concatenate(indices) if indices else np.zeros(0, np.int64)
    value = np.concatenate(values) if values else np.zeros(0, np.float32)
    shares = gather_objects((index, value))
    index = np.concatenate([share[0] for share in shares])
    value = np.concatenate([share[1] for share in shares if len(share[1])] or [value])
    real = index >= 0
    index, first = np.unique(index[real], return_index=True)
    return index, value[real][first]
