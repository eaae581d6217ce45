"""Communication between processes outside of Lightning's own strategies."""

from typing import TypeVar

import torch.distributed

T = TypeVar("T")


def gather_objects(mine: T) -> list[T]:
    """Gathers an object of every process, in the order of their ranks."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [mine]
    shares: list[T] = [mine] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(shares, mine)
    return shares
