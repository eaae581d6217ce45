"""A worker that the kernel kills at some rows, as often as the environment says."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faithkit_workflows.ray.chunks import ChunkWorker

COUNTS, TIMES, ROW = "TEST_DEATHS_FILE", "TEST_DEATHS", b"labelled:14"  # a row of the third chunk of seven


class DyingWorker(ChunkWorker):
    """It counts its deaths in a file."""

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        with Path(os.environ[COUNTS]).open("a+") as file:
            file.seek(0)
            if ROW in row["examples"] and len(file.read()) < int(os.environ[TIMES]):
                file.write("x")
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(row)
