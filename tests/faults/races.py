"""Several processes that do the same work at once: forked from this one, so that nothing is loaded again."""

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

FORK = multiprocessing.get_context("fork")
SECONDS = 60


def race(work: Callable[[], Any], num_processes: int = 3) -> list[Any]:
    """Starts all processes at one moment; gives what each returned.

    Raises:
        AssertionError: One of them failed or hung.
    """
    barrier, results = FORK.Barrier(num_processes), FORK.SimpleQueue()

    def run() -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads did not survive the fork
        barrier.wait(SECONDS)
        try:
            results.put(("done", work()))
        except BaseException:
            results.put(("failed", traceback.format_exc()))

    processes = [FORK.Process(target=run) for _ in range(num_processes)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
    assert [process.exitcode for process in processes] == [0] * num_processes
    found = [results.get() for _ in processes]
    assert all(state == "done" for state, _ in found), found
    return [result for _, result in found]


def killed_after(seconds: float, work: Callable[[], Any]) -> bool:
    """Does the work in a process of its own, and kills that after so long; True if it was not done by then."""
    process = FORK.Process(target=work)
    process.start()
    time.sleep(seconds)
    process.kill()
    process.join(SECONDS)
    return process.exitcode == -signal.SIGKILL
