"""Offline W&B runs, read when they have come to their end."""

import json
import time
from pathlib import Path
from typing import Any

from faithkit.runs.wandb_records import WandbFile, read_wandb_file


def offline_runs(folder: Path) -> list[WandbFile]:
    """All offline runs below a folder, in the order in which they began."""
    return [_wait_for_end(path) for path in sorted(folder.rglob("offline-run-*/*.wandb"))]


def _wait_for_end(path: Path) -> WandbFile:
    """Reads a run when W&B's own process has written its last record, which takes a moment after `finish`."""
    end = time.monotonic() + 10
    while (run := read_wandb_file(path)).exit_code is None and time.monotonic() < end:
        time.sleep(0.02)
    assert not run.problem
    return run


def table_of(run: WandbFile, key: str) -> dict[str, Any]:
    """A table that was logged, as its JSON file holds it."""
    found: dict[str, Any] = json.loads((run.path.parent / "files" / run.summary[key]["path"]).read_text())
    return found
