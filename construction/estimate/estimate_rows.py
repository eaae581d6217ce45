"""Reads the table of a detector's verdicts of which an estimate is made; people's labels: `estimate_labels`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from construction.estimate.verdict_columns import LABEL, newest_label, score_names
from data_modules.reading.rows import ReadReport, Row, read_rows
from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED
from faithkit.statistics.spread import Values

VALUES = {
    **dict.fromkeys((HALLUCINATED, "1", "1.0", "true", "yes"), 1.0),
    **dict.fromkeys((FAITHFUL, "0", "0.0", "false", "no"), 0.0),
}
TEXTS = ("knowledge", "history", "response", "text")  # shown to who labels, where a row has them
MOST_NAMES = 12  # of columns, in a hint
VERDICTS_HINT = f"use {HALLUCINATED}, {FAITHFUL} or {UNPARSED} (or 1 and 0)"


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A detector's verdicts.

    Args:
        called: 1 for hallucinated, 0 for faithful, NaN where the verdict could not be read [N].
        scores: P(hallucinated), or the verdicts; where there is none the mean of the others [N].
        by: The value of the column to count by; empty without one.
        shown: The texts of each row, for who labels.
    """

    ids: Sequence[str]
    called: Values
    scores: Values
    groups: Sequence[str]
    by: Sequence[str]
    shown: Sequence[Mapping[str, str]]
    uses_scores: bool
    has_groups: bool
    num_unparsed: int


def read_verdicts(
    path: str, columns: Mapping[str, str | None], by: str | None, facts: Mapping[str, Mapping[str, Any]] | None = None
) -> Table:
    """Reads the verdicts.

    Args:
        facts: By id, what a dataset tells of each response: further columns.

    Raises:
        UserError: A column is missing, an id is given twice or unknown to the dataset, or a value is no verdict.
    """
    id_name = str(columns["id"])
    rows = [_with_facts(row, id_name, facts) for row in read_rows(Path(path), ReadReport())]
    group_name = columns["group"] or ("group" if all("group" in row.values for row in rows) else None)
    named = ((f"columns.{key}", name) for key, name in columns.items() if name)
    need_columns(rows[0], path, [*named, *([("by", by)] if by else [])])
    label_name = label_of(str(columns["label"]), rows[0].values)
    ids = [id_of(row, id_name) for row in rows]
    _each_once(ids, path)
    called = np.array([_verdict(row, label_name) for row in rows])
    usual = score_names(label_name, rows[0].values)
    score_name = columns["score"] or next(
        (name for name in usual if all(number_of(row.values.get(name)) is not None for row in rows)), None
    )
    scores = called if score_name is None else np.array([_score(row, score_name) for row in rows])
    known = np.isfinite(scores)
    if not known.any():
        raise UserError("no verdict can be used", place=path, hint="columns.label=NAME or columns.score=NAME")
    return Table(
        ids=ids,
        called=called,
        scores=np.where(known, scores, scores[known].mean()),
        groups=ids if group_name is None else [id_of(row, group_name) for row in rows],
        by=[str(row.values.get(by)) for row in rows] if by else [],
        shown=[{n: text for n in TEXTS if isinstance(text := row.values.get(n), str) and text} for row in rows],
        uses_scores=score_name is not None,
        has_groups=group_name is not None,
        num_unparsed=int((~known).sum()),
    )


def label_of(name: str, columns: Collection[str]) -> str:
    """Finds the column of the verdicts: the one that scoring added last, where the data have a label of their own."""
    return newest_label(columns) if name == LABEL else name


def need_columns(row: Row, path: str, columns: Sequence[tuple[str, str]]) -> None:
    """Refuses a file without columns that settings name.

    Args:
        columns: Settings and the columns that they name.
    """
    for key, name in columns:
        if name not in row.values:
            have = ", ".join(list(row.values)[:MOST_NAMES]) + (", ..." if len(row.values) > MOST_NAMES else "")
            raise UserError(
                f"there is no column {name!r}", place=path, hint=f"pipeline.{key}=NAME; the file has {have}"
            )


def _with_facts(row: Row, id_name: str, facts: Mapping[str, Mapping[str, Any]] | None) -> Row:
    """A row with what the dataset tells of it; its own columns count first, empty ones aside."""
    if facts is None or id_name not in row.values:
        return row
    name = str(row.values[id_name])
    if name not in facts:
        hint = "name the dataset, split and options that these verdicts are of"
        raise UserError(f"the dataset has no response {shorten(name)}", place=row.place, hint=hint)
    own = {key: value for key, value in row.values.items() if value not in (None, "")}
    return replace(row, values={**row.values, **facts[name], **own})


def id_of(row: Row, name: str) -> str:
    """Reads a cell that every row needs."""
    value = row.values.get(name)
    if value in (None, "") or isinstance(value, list | dict):
        raise UserError(f"column {name!r} is missing or empty", place=row.place, hint="every row needs one")
    return str(value)


def _each_once(ids: Sequence[str], path: str) -> None:
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            hint = "give one row for each response: columns.id=NAME of a column that tells them apart"
            raise UserError(f"id {shorten(name)} is given twice", place=path, hint=hint)
        seen.add(name)


def _verdict(row: Row, name: str) -> float:
    try:
        return verdict_of(row.values.get(name))
    except ValueError as error:
        raise UserError(f"column {name!r} has {error}", place=row.place, hint=VERDICTS_HINT) from error


def verdict_of(value: Any) -> float:
    """Reads a verdict: 1 for hallucinated, 0 for faithful, NaN where there is none.

    Raises:
        ValueError: It is something else.
    """
    text = "" if value is None else str(value).strip().lower()
    if text in ("", UNPARSED):
        return float("nan")
    if text not in VALUES:
        raise ValueError(shorten(value))
    return VALUES[text]


def _score(row: Row, name: str) -> float:
    number = number_of(row.values.get(name))
    if number is None:
        return float("nan")
    if not 0 <= number <= 1:
        raise UserError(f"column {name!r} has {number}", place=row.place, hint="a probability lies in 0..1")
    return number


def number_of(value: Any) -> float | None:
    """Reads a finite number; None where there is none."""
    if isinstance(value, bool) or value in (None, ""):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None
