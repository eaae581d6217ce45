"""Reads and writes what annotators say of judgements, people and models alike: JSON lines of {"id", "label"}."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faithkit.errors import UserError, choice_hint, shorten
from faithkit.files.jsonl import read_numbered_jsonl, write_jsonl
from faithkit.records import UNPARSED

ACCURATE, INACCURATE = VERDICTS = ("accurate", "inaccurate")
LABELS = (*VERDICTS, UNPARSED)


def read_annotations(path: str | Path) -> dict[str, str]:
    """Reads labels by id.

    Raises:
        UserError: A row without id or label, a label that is none of LABELS, an id twice, or no rows.
    """
    found: dict[str, str] = {}
    for line, row in read_numbered_jsonl(path):
        place = f"{path}, line {line}"
        id_, label = row.get("id"), row.get("label")
        if not isinstance(id_, str) or not id_:
            raise UserError(f"id must be a text, got {shorten(id_)}", place=place, hint='{"id": "...", "label": "..."}')
        if label not in LABELS:
            raise UserError(f"label is {shorten(label)}", place=place, hint=choice_hint(label, LABELS))
        if id_ in found:
            raise UserError(f"id {shorten(id_)} was already given", place=place, hint="keep one label an id")
        found[id_] = label
    if not found:
        raise UserError("the file holds no labels", place=str(path), hint="check that it was written whole")
    return found


def write_annotations(path: Path, labels: Mapping[str, str], others: Sequence[Mapping[str, Any]]) -> None:
    """Writes labels with further fields of each row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(
        path, ({"id": id_, "label": label, **own} for (id_, label), own in zip(labels.items(), others, strict=True))
    )
