"""Writes files as W&B does, so that tests of reading them need no process of W&B."""

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from faithkit.runs.wandb_records import BLOCK, HEADER

BEGAN = 1_790_000_000
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def write_wandb(path: Path, records: Iterable[Any]) -> Path:
    """Writes records in LevelDB's log format, in pieces where a block ends."""
    data = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for record in records:
        rest, is_first = record.SerializeToString(), True
        while is_first or rest:
            room = BLOCK - len(data) % BLOCK
            if room < HEADER:
                data += bytes(room)
                room = BLOCK
            piece, rest = rest[: room - HEADER], rest[room - HEADER :]
            kind = (WHOLE if is_first else LAST) if not rest else (FIRST if is_first else MIDDLE)
            data += struct.pack("<IHB", 0, len(piece), kind) + piece
            is_first = False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def run_records(
    config: Mapping[str, Any],
    history: Iterable[Mapping[str, Any]] = (),
    summary: Mapping[str, Any] | None = None,
    exit_code: int | None = 0,
) -> list[Any]:
    """The records of a run, as our logger leaves them."""
    from wandb.proto.wandb_internal_pb2 import Record

    begun = Record()
    begun.run.run_id, begun.run.display_name = "abc", "mine"
    begun.run.project, begun.run.job_type = "faithkit", "train"
    begun.run.tags.append("model=critic")
    begun.run.start_time.seconds = BEGAN
    settings, later, end, ended = Record(), Record(), Record(), Record()
    _set(settings.config.update, {**config, "environment": {"torch": "2"}})
    _set(later.config.update, {"lr": 5, "data_summary": {"fingerprints": {"a": "b"}}})  # Lightning adds the module's
    rows = []
    for row in history:
        rows.append(Record())
        _set(rows[-1].history.item, row)
    _set(end.summary.update, summary or {})
    ended.exit.exit_code = exit_code or 0
    return [begun, settings, later, *rows, end, *([] if exit_code is None else [ended])]


def _set(items: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        item = items.add()
        item.key, item.value_json = name, json.dumps(value)
