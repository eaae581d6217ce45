"""Process groups for tests: of this process alone, and of several new ones."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
import torch.multiprocessing as mp


@contextmanager
def alone() -> Iterator[None]:
    """Makes this process a group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def in_processes(count: int, work: Callable[..., None], *arguments: Any) -> None:
    """Calls `work` in each process of a new group; they are forks of a process that has imported its module once.

    Args:
        work: A function of a module.
    """
    multiprocessing.set_forkserver_preload([work.__module__])
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.start_processes(_join, (count, server.port, work, arguments), nprocs=count, start_method="forkserver")


def _join(rank: int, count: int, port: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    store = dist.TCPStore("127.0.0.1", port)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=count)
    try:
        work(*arguments)
    finally:
        dist.destroy_process_group()
