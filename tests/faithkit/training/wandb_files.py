"""Reads offline W&B runs from their files: records of wandb's protocol in LevelDB's log format."""

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK, HEADER = 32768, 7  # bytes of a block, and of the header of the file and of each piece of a record
WHOLE, LAST = 1, 4  # a record in one piece, and the last piece of one in several


@dataclass
class WandbFile:
    """The content of one file; a resumed run has several.

    Args:
        names: wandb's record of the run: id, project, group, job type, tags.
        exit_code: None if the run was never finished.
    """

    path: Path
    names: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[Any] = field(default_factory=list)
    exit_code: int | None = None


def offline_runs(folder: Path) -> list[WandbFile]:
    """Reads all offline runs below a folder, in the order in which they began."""
    return [_wait_for_end(path) for path in sorted(folder.rglob("offline-run-*/*.wandb"))]


def table_of(run: WandbFile, key: str) -> dict[str, Any]:
    """Reads a logged table from its JSON file."""
    found: dict[str, Any] = json.loads((run.path.parent / "files" / run.summary[key]["path"]).read_text())
    return found


def _wait_for_end(path: Path) -> WandbFile:
    """Reads a run once W&B's process has written its last record, which takes a moment after `finish`."""
    end = time.monotonic() + 10
    while (run := _read(path)).exit_code is None and time.monotonic() < end:
        time.sleep(0.02)
    return run


def _read(path: Path) -> WandbFile:
    found = WandbFile(path)
    for record in _records(path.read_bytes()):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found.names = record.run
            _update(found.config, record.run.config.update)
        elif kind in ("config", "summary"):
            _update(getattr(found, kind), getattr(record, kind).update)
        elif kind == "history":
            found.history.append(_update({}, record.history.item))
        elif kind == "artifact":
            found.artifacts.append(record.artifact)
        elif kind == "exit":
            found.exit_code = record.exit.exit_code
    return found


def _update(target: dict[str, Any], items: Any) -> dict[str, Any]:
    for item in items:
        *outer, name = list(item.nested_key) or [item.key]
        place = target
        for part in outer:
            place = place.setdefault(part, {})
        place[name] = json.loads(item.value_json)
    return target


def _records(data: bytes) -> Iterator[Any]:
    """Parses the records of a file, which may end anywhere."""
    from wandb.proto import wandb_internal_pb2 as protocol

    record_type: Any = protocol.Record  # type: ignore[attr-defined]  # made when it is imported
    place, pieces = HEADER, b""
    while place + HEADER <= len(data):
        if (rest := BLOCK - place % BLOCK) < HEADER:  # padding
            place += rest
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + HEADER])
        end = place + HEADER + length
        if kind == 0 or end > len(data):  # not written yet
            return
        pieces += data[place + HEADER : end]
        place = end
        if kind in (WHOLE, LAST):
            yield record_type.FromString(pieces)
            pieces = b""
