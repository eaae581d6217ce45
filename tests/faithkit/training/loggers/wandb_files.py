"""Reads the file of an offline W&B run: records in LevelDB's log format. wandb itself reads it in Go alone."""

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK, HEADER = 32768, 7
WHOLE, LAST = 1, 4  # a record in one piece, and the last piece of one in several


@dataclass
class OfflineRun:
    """The content of an offline run; `exit_code` stays None for one that was never finished."""

    path: Path
    names: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[Any] = field(default_factory=list)
    exit_code: int | None = None

    def table(self, key: str) -> dict[str, Any]:
        """A table that was logged, as its JSON file holds it."""
        found: dict[str, Any] = json.loads((self.path.parent / "files" / self.summary[key]["path"]).read_text())
        return found


def offline_runs(folder: Path) -> list[OfflineRun]:
    """All offline runs below a folder, in the order in which they began."""
    return [_wait_for_end(path) for path in sorted(folder.rglob("offline-run-*/*.wandb"))]


def _wait_for_end(path: Path) -> OfflineRun:
    """Reads a run when W&B's own process has written its last record, which takes a moment after `finish`."""
    end = time.monotonic() + 10
    while (run := _read(path)).exit_code is None and time.monotonic() < end:
        time.sleep(0.02)
    return run


def _read(path: Path) -> OfflineRun:
    run = OfflineRun(path)
    for record in _records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.names = record.run
            _update(run.config, record.run.config.update)
        elif kind in ("config", "summary"):
            _update(getattr(run, kind), getattr(record, kind).update)
        elif kind == "history":
            run.history.append(_update({}, record.history.item))
        elif kind == "artifact":
            run.artifacts.append(record.artifact)
        elif kind == "exit":
            run.exit_code = record.exit.exit_code
    return run


def _update(target: dict[str, Any], items: Any) -> dict[str, Any]:
    for item in items:
        *outer, name = list(item.nested_key) or [item.key]
        place = target
        for part in outer:
            place = place.setdefault(part, {})
        place[name] = json.loads(item.value_json)
    return target


def _records(path: Path) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, pieces = path.read_bytes(), HEADER, []  # W&B's own header is as long as a piece's
    assert data[:4] in (b":W&B", b"")
    while place + HEADER <= len(data):
        if BLOCK - place % BLOCK < HEADER:  # the rest of a block is padding
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + HEADER])
        if place + HEADER + length > len(data):
            return  # not written to its end yet
        pieces.append(data[place + HEADER : place + HEADER + length])
        place += HEADER + length
        if kind in (WHOLE, LAST):
            record = Record()
            record.ParseFromString(b"".join(pieces))
            pieces.clear()
            yield record
