"""Gathers Python objects from all processes, beside what Lightning's strategies gather."""

from typing import TypeVar

import torch.distributed

T = TypeVar("T")


def gather_objects(own: T) -> list[T]:
    """Gives every process the objects of all, in the order of their ranks; alone, just its own."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [own]
    gathered: list[T] = [own] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, own)
    return gathered
