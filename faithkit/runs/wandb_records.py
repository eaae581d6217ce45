"""Reads the file of a W&B run, `run-ID.wandb`: all that the run logged is in there, no server and no account needed.

Records of wandb's own protocol stand in LevelDB's log format: blocks of 32 KiB, in which a record may stand in pieces
(https://github.com/google/leveldb/blob/main/doc/log_format.md). wandb itself reads it in Go alone.
"""

import copy
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEGINNING = b":W&B"
BLOCK, HEADER = 32768, 7  # the file's own header is as long as that of a piece
WHOLE, FIRST, LAST = 1, 2, 4  # a record in one piece; the first and the last piece of one in several
ENVIRONMENT = "environment"  # logged with the settings


@dataclass
class WandbFile:
    """The content of one file; a run that was resumed has several.

    Args:
        names: wandb's record of the run: id, project, group, job type, tags; None where the file ends before it.
        config: All that was logged as configuration, at whatever time.
        settings: The run's own settings among it, which are logged first; Lightning adds those of its module later.
        artifacts: wandb's records of those that the run made or used (`use_after_commit`).
        exit_code: None of a run that was never finished.
        problem: A sentence on what could not be read; empty where all could.
    """

    path: Path
    names: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[Any] = field(default_factory=list)
    exit_code: int | None = None
    problem: str = ""


def read_wandb_file(path: Path) -> WandbFile:
    """Reads a file as far as it goes: one that a kill cut off has all that was in it before."""
    from google.protobuf.message import DecodeError

    found = WandbFile(path)
    try:
        for record in _records(path.read_bytes()):
            _add(found, record)
    except (DecodeError, ValueError, RecursionError) as error:
        found.problem = f"{path.name} is damaged, and read up to there: {error}"
    except OSError as error:
        found.problem = f"{path.name} cannot be read: {error.strerror}"
    return found


def _add(found: WandbFile, record: Any) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        found.names = record.run
        _update(found.config, record.run.config.update)
    elif kind in ("config", "summary"):
        _update(getattr(found, kind), getattr(record, kind).update)
        if kind == "config" and ENVIRONMENT in found.config and not found.settings:
            found.settings = copy.deepcopy(found.config)
    elif kind == "history":
        found.history.append(_update({}, record.history.item))
    elif kind == "artifact":
        found.artifacts.append(record.artifact)
    elif kind == "exit":
        found.exit_code = record.exit.exit_code


def _update(target: dict[str, Any], items: Any) -> dict[str, Any]:
    for item in items:
        *outer, name = list(item.nested_key) or [item.key]
        place = target
        for part in outer:
            inner = place.get(part)
            place[part] = place = inner if isinstance(inner, dict) else {}
        place[name] = json.loads(item.value_json)
    return target


def _records(data: bytes) -> Iterator[Any]:
    """Parses the records of a file; it may end anywhere.

    Raises:
        ValueError: It is no such file, or a piece of a record stands where none can.
        DecodeError: A record is none.
    """
    from wandb.proto import wandb_internal_pb2 as protocol

    record_type: Any = protocol.Record  # type: ignore[attr-defined]  # made when it is imported
    if data[: len(BEGINNING)] != BEGINNING[: len(data)]:
        raise ValueError("it does not begin as a file of W&B")
    place, pieces = HEADER, b""
    while place + HEADER <= len(data):
        rest = BLOCK - place % BLOCK
        if rest < HEADER:  # padding
            place += rest
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + HEADER])
        if kind == 0 and length == 0:  # room that was never written to
            place += rest
            continue
        if not WHOLE <= kind <= LAST or (kind in (WHOLE, FIRST)) == bool(pieces):
            raise ValueError(f"no record at byte {place:,}")
        end = place + HEADER + length
        if end > len(data):
            return  # not written to its end
        pieces += data[place + HEADER : end]
        place = end
        if kind in (WHOLE, LAST):
            yield record_type.FromString(pieces)
            pieces = b""
