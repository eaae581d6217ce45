"""Holds a detector's verdicts as sums, and reads them from a file of responses."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from construction.estimate.labels import LABELS, read_name, read_number, require_columns
from construction.estimate.verdict_columns import LABEL, newest_label, score_names
from data_modules.reading.rows import ReadReport, Row, read_rows
from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED
from faithkit.statistics.bootstrap import Groups
from faithkit.statistics.label_sampling import Wave, sample_rows
from faithkit.statistics.spread import Values

TEXTS = ("knowledge", "history", "response", "text")  # shown to annotators if a row has them
VERDICTS_HINT = f"use {HALLUCINATED}, {FAITHFUL} or {UNPARSED} (or 1 and 0)"
NO_VERDICTS_HINT = "pipeline.columns.label=NAME or pipeline.columns.score=NAME"
ROWS, SCORED, SCORES, SQUARES, JUDGED, CALLED = range(6)  # columns of the sums


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRow:
    """A row that is labelled, or drawn to be labelled.

    Args:
        place: Its number in the file or the shard.
        cell: Its place in the sums.
        score: NaN without one.
        label: 1 for hallucinated, 0 for faithful, NaN for an unreadable verdict.
    """

    shard: str = ""
    place: int
    cell: int
    score: float
    label: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VerdictTable:
    """A detector's verdicts as sums over cells: single rows, or the rows of a group with one value of a column.

    Args:
        sums: Of rows, scored rows, scores, squared scores, judged rows and rows called hallucinated [M, 6].
        groups: The dialogue or source of each cell.
        parts: The place in `part_names` of each cell's value of the column to count by [M]; None without a column.
        part_names: The values in the order of their names.
        labelled: The rows that people labelled, by id.
        mean: Of the known scores.
        uses_scores: Whether P(hallucinated) is used, and not the labels.
        mean_spread: The mean of sqrt(p (1 - p)) over all rows.
        draw: Draws unlabelled rows: their number, the rule and the seed give the rows and their wave.
        texts: Reads the id and the texts of some rows, for annotators.
        is_by_row: Whether each cell is a row.
    """

    sums: Values
    groups: Groups
    parts: NDArray[np.int32] | None
    part_names: Sequence[str]
    labelled: Mapping[str, ScoredRow]
    mean: float
    uses_scores: bool
    has_groups: bool
    mean_spread: float
    draw: Callable[[int, str, int], tuple[list[ScoredRow], Wave]]
    texts: Callable[[Sequence[ScoredRow]], list[dict[str, str]]]
    is_by_row: bool = False

    @property
    def num_rows(self) -> int:
        """Counts the rows."""
        return round(self.sums[:, ROWS].sum())

    @property
    def num_unread(self) -> int:
        """Counts the rows whose verdict is missing: the mean of the others replaces it."""
        return self.num_rows - round(self.sums[:, SCORED].sum())

    def scores_of(self, rows: Sequence[ScoredRow]) -> Values:
        """Gives the scores of some rows; the mean replaces missing ones."""
        scores = np.array([row.score for row in rows])
        return np.where(np.isfinite(scores), scores, self.mean)


def sum_rows(labels: Values, scores: Values) -> Values:
    """Computes the sums of single rows [N, 6]."""
    scored, judged = np.isfinite(scores), np.isfinite(labels)
    known, called = np.where(scored, scores, 0.0), np.where(judged, labels, 0.0)
    return np.stack([np.ones(len(labels)), scored, known, known * known, judged, called], axis=1)


def mean_score(sums: Values, place: str | None = None) -> float:
    """Averages the known scores.

    Raises:
        UserError: There is none.
    """
    count = sums[:, SCORED].sum()
    if not count:
        raise UserError("no verdict can be used", place=place, hint=NO_VERDICTS_HINT)
    return float(sums[:, SCORES].sum() / count)


def read_verdicts(
    path: str,
    columns: Mapping[str, str | None],
    by: str | None,
    ids: Collection[str],
    facts: Mapping[str, Mapping[str, Any]] | None = None,
) -> VerdictTable:
    """Reads the verdicts of a file.

    Args:
        ids: Of the rows that people labelled.
        facts: Further columns from a dataset, by id.

    Raises:
        UserError: A column is missing, an id is repeated or not in the dataset, or a value is no verdict.
    """
    id_name = str(columns["id"])
    rows = [_with_facts(row, id_name, facts) for row in read_rows(Path(path), ReadReport())]
    group_name = columns["group"] or ("group" if all("group" in row.values for row in rows) else None)
    named = [(f"columns.{key}", name) for key, name in columns.items() if name]
    require_columns(rows[0], path, [*named, *([("by", by)] if by else [])])
    label_name = label_column(str(columns["label"]), rows[0].values)
    ids_of_rows = [read_name(row, id_name) for row in rows]
    places = {name: place for place, name in enumerate(ids_of_rows)}
    if len(places) < len(rows):
        twice = next(name for place, name in enumerate(ids_of_rows) if places[name] != place)
        hint = "give one row for each response: columns.id=NAME of a column with unique values"
        raise UserError(f"id {shorten(twice)} is given twice", place=path, hint=hint)
    labels = np.array([_read_label(row, label_name) for row in rows])
    usual = score_names(label_name, rows[0].values)
    score_name = columns["score"] or next(
        (name for name in usual if all(read_number(row.values.get(name)) is not None for row in rows)), None
    )
    scores = labels if score_name is None else np.array([_read_score(row, score_name) for row in rows])
    sums = sum_rows(labels, scores)
    mean = mean_score(sums, path)
    filled = np.where(np.isfinite(scores), scores, mean)
    part_names, parts = np.unique(np.array([str(row.values.get(by or "")) for row in rows]), return_inverse=True)

    def row_at(place: int) -> ScoredRow:
        return ScoredRow(place=place, cell=place, score=float(scores[place]), label=float(labels[place]))

    labelled = {name: row_at(places[name]) for name in ids if name in places}

    def draw(count: int, rule: str, seed: int) -> tuple[list[ScoredRow], Wave]:
        is_labelled = np.zeros(len(rows), bool)
        is_labelled[[row.place for row in labelled.values()]] = True
        chosen, wave = sample_rows(filled, is_labelled, count, rule, seed=seed)
        return [row_at(place) for place in chosen.tolist()], wave

    def texts(shown: Sequence[ScoredRow]) -> list[dict[str, str]]:
        return [{"id": ids_of_rows[row.place], **shown_texts(rows[row.place].values)} for row in shown]

    return VerdictTable(
        sums=sums,
        groups=Groups.of(ids_of_rows if group_name is None else [read_name(row, group_name) for row in rows]),
        parts=parts.astype(np.int32) if by else None,
        part_names=part_names.tolist() if by else [],
        labelled=labelled,
        mean=mean,
        uses_scores=score_name is not None,
        has_groups=group_name is not None,
        mean_spread=float(np.sqrt(filled * (1 - filled)).mean()),
        draw=draw,
        texts=texts,
        is_by_row=True,
    )


def shown_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Selects the texts of a row that annotators see."""
    return {name: text for name in TEXTS if isinstance(text := values.get(name), str) and text}


def label_column(name: str, columns: Collection[str]) -> str:
    """Finds the column of the verdicts: the one that scoring added last, if the data had another label."""
    return newest_label(columns) if name == LABEL else name


def _with_facts(row: Row, id_name: str, facts: Mapping[str, Mapping[str, Any]] | None) -> Row:
    """Adds columns from a dataset to a row; non-empty columns of the row take precedence."""
    if facts is None or id_name not in row.values:
        return row
    name = str(row.values[id_name])
    if name not in facts:
        hint = "name the dataset, split and options that these verdicts are of"
        raise UserError(f"the dataset has no response {shorten(name)}", place=row.place, hint=hint)
    filled = {key: value for key, value in row.values.items() if value not in (None, "")}
    return replace(row, values={**row.values, **facts[name], **filled})


def _read_label(row: Row, name: str) -> float:
    try:
        return parse_label(row.values.get(name))
    except ValueError as error:
        raise UserError(f"column {name!r} has {error}", place=row.place, hint=VERDICTS_HINT) from error


def parse_label(value: Any) -> float:
    """Reads a verdict: 1 for hallucinated, 0 for faithful, NaN for none.

    Raises:
        ValueError: It is something else.
    """
    text = "" if value is None else str(value).strip().lower()
    if text in ("", UNPARSED):
        return float("nan")
    if text not in LABELS:
        raise ValueError(shorten(value))
    return LABELS[text]


def _read_score(row: Row, name: str) -> float:
    number = read_number(row.values.get(name))
    if number is None:
        return float("nan")
    if not 0 <= number <= 1:
        raise UserError(f"column {name!r} has {number}", place=row.place, hint="a probability lies in 0..1")
    return number
