"""Rows of a chain: plain JSON objects with a key, and the holes that stand in the place of those that failed."""

from collections.abc import Iterator, Mapping
from typing import Any

from faithkit.records import Prediction

Row = dict[str, Any]
KEY, HOLE = "key", "hole"
TRIES = "tries"  # of a row that is made again: how often it was tried before
NO_VERDICT = "no verdict"  # why a row that a model or a detector judged became a hole
AT = "@"  # before a branch's name in the keys of rows that several branches give


def hole(key: str, step: str, why: str, detail: str = "", tries: int = 1) -> Row:
    """Makes the row that stands in the place of one that failed: later steps pass it on untouched.

    Args:
        step: That it failed in.
        why: A kind of failure, by which holes are counted.
        detail: What is particular to this one.
        tries: How often it was tried.
    """
    said = {"detail": detail} if detail else {}
    return {KEY: key, HOLE: {"step": step, "why": why, **said, TRIES: tries}}


def without_verdict(row: Row, step: str, found: Prediction) -> Row:
    """Makes the hole of a row on which a detector has no verdict; it is asked again as often as others are."""
    return hole(row[KEY], step, NO_VERDICT, found.text, row.get(TRIES, 0) + 1)


def is_hole(row: Mapping[str, Any]) -> bool:
    """Tells whether a row is a hole."""
    return HOLE in row


def tries_of(row: Mapping[str, Any]) -> int:
    """Counts how often a hole was tried."""
    return int(row[HOLE].get(TRIES, 1))


def hole_name(row: Mapping[str, Any]) -> str:
    """Names the kind of a hole, as counts of them have it: the step, and why."""
    return f"{row[HOLE]['step']}: {row[HOLE]['why']}"


def without_holes(rows: Iterator[Row]) -> Iterator[Row]:
    """Leaves out the holes."""
    return (row for row in rows if not is_hole(row))
