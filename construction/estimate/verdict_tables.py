"""Reads what an estimate is made of: a detector's verdicts, and people's labels of some of the responses."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from construction.estimate.verdict_columns import LABEL, newest_label, score_names
from data_modules.reading.rows import ReadReport, Row, read_rows
from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED
from faithkit.statistics.label_sampling import RANDOM, Wave, read_waves
from faithkit.statistics.prediction_powered import Verdicts
from faithkit.statistics.spread import Values

VALUES = {
    **dict.fromkeys((HALLUCINATED, "1", "1.0", "true", "yes"), 1.0),
    **dict.fromkeys((FAITHFUL, "0", "0.0", "false", "no"), 0.0),
}
TEXTS = ("knowledge", "history", "response", "text")  # shown to annotators if a row has them
WAVES, PROBABILITY = "waves", "inclusion_probability"  # columns of label_next.csv
MAX_NAMES = 12  # columns in a hint
VERDICTS_HINT = f"use {HALLUCINATED}, {FAITHFUL} or {UNPARSED} (or 1 and 0)"
NO_VERDICTS_HINT = "pipeline.columns.label=NAME or pipeline.columns.score=NAME"


@dataclass(frozen=True, slots=True, eq=False)
class VerdictTable:
    """A detector's verdicts.

    Args:
        labels: 1 for hallucinated, 0 for faithful, NaN for an unreadable verdict [N].
        scores: P(hallucinated), or the labels; the mean replaces missing ones [N].
        by: The value of the column to count by; empty without one.
        texts: The texts of each row, for annotators.
    """

    ids: Sequence[str]
    labels: Values
    scores: Values
    groups: Sequence[str]
    by: Sequence[str]
    texts: Sequence[Mapping[str, str]]
    uses_scores: bool
    has_groups: bool
    num_unparsed: int


def read_verdicts(
    path: str, columns: Mapping[str, str | None], by: str | None, facts: Mapping[str, Mapping[str, Any]] | None = None
) -> VerdictTable:
    """Reads the verdicts.

    Args:
        facts: Further columns from a dataset, by id.

    Raises:
        UserError: A column is missing, an id is repeated or not in the dataset, or a value is no verdict.
    """
    id_name = str(columns["id"])
    rows = [_with_facts(row, id_name, facts) for row in read_rows(Path(path), ReadReport())]
    group_name = columns["group"] or ("group" if all("group" in row.values for row in rows) else None)
    named = ((f"columns.{key}", name) for key, name in columns.items() if name)
    require_columns(rows[0], path, [*named, *([("by", by)] if by else [])])
    label_name = label_column(str(columns["label"]), rows[0].values)
    ids = [read_name(row, id_name) for row in rows]
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = next(name for name in ids if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        hint = "give one row for each response: columns.id=NAME of a column with unique values"
        raise UserError(f"id {shorten(twice)} is given twice", place=path, hint=hint)
    labels = np.array([_read_label(row, label_name) for row in rows])
    usual = score_names(label_name, rows[0].values)
    score_name = columns["score"] or next(
        (name for name in usual if all(read_number(row.values.get(name)) is not None for row in rows)), None
    )
    scores = labels if score_name is None else np.array([_read_score(row, score_name) for row in rows])
    known = np.isfinite(scores)
    if not known.any():
        raise UserError("no verdict can be used", place=path, hint=NO_VERDICTS_HINT)
    return VerdictTable(
        ids=ids,
        labels=labels,
        scores=np.where(known, scores, scores[known].mean()),
        groups=ids if group_name is None else [read_name(row, group_name) for row in rows],
        by=[str(row.values.get(by)) for row in rows] if by else [],
        texts=[shown_texts(row.values) for row in rows],
        uses_scores=score_name is not None,
        has_groups=group_name is not None,
        num_unparsed=int((~known).sum()),
    )


def shown_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Selects the texts of a row that annotators see."""
    return {name: text for name in TEXTS if isinstance(text := values.get(name), str) and text}


def label_column(name: str, columns: Collection[str]) -> str:
    """Finds the column of the verdicts: the one that scoring added last, if the data had another label."""
    return newest_label(columns) if name == LABEL else name


def require_columns(row: Row, path: str, columns: Sequence[tuple[str, str]]) -> None:
    """Refuses a file without columns that settings name.

    Args:
        columns: Settings and the columns that they name.
    """
    for key, name in columns:
        if name not in row.values:
            found = ", ".join(list(row.values)[:MAX_NAMES]) + (", ..." if len(row.values) > MAX_NAMES else "")
            hint = f"pipeline.{key}=NAME; the file has {found}"
            raise UserError(f"there is no column {name!r}", place=path, hint=hint)


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


def read_name(row: Row, column: str) -> str:
    """Reads a cell that every row needs."""
    value = row.values.get(column)
    if value in (None, "") or isinstance(value, list | dict):
        raise UserError(f"column {column!r} is missing or empty", place=row.place, hint="every row needs one")
    return str(value)


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
    if text not in VALUES:
        raise ValueError(shorten(value))
    return VALUES[text]


def _read_score(row: Row, name: str) -> float:
    number = read_number(row.values.get(name))
    if number is None:
        return float("nan")
    if not 0 <= number <= 1:
        raise UserError(f"column {name!r} has {number}", place=row.place, hint="a probability lies in 0..1")
    return number


def read_number(value: Any) -> float | None:
    """Reads a finite number; None if there is none."""
    if isinstance(value, bool) or value in (None, ""):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


@dataclass(frozen=True, slots=True)
class Labels:
    """People's labels by id, how they were drawn, and what was skipped.

    Args:
        probabilities: That each labelled response was chosen, by any of the waves; empty if the file has none.
        without_waves: Ids of labels without waves.
        num_open: Responses of the last wave that are not labelled yet.
        open_at: The place of the first of them.
    """

    values: dict[str, float]
    probabilities: dict[str, float] = field(default_factory=dict)
    waves: Sequence[Wave] = ()
    without_waves: Collection[str] = ()
    num_unknown: int = 0
    num_empty: int = 0
    num_repeated: int = 0
    num_open: int = 0
    open_at: str | None = None

    def only(self, ids: Collection[str], path: str) -> "Labels":
        """Leaves out the labels of other responses.

        Raises:
            UserError: None is left.
        """
        values = {name: value for name, value in self.values.items() if name in ids}
        num_unknown = len(self.values) - len(values)
        if num_unknown and not values:
            raise _unknown_labels(num_unknown, path)
        probabilities = {name: value for name, value in self.probabilities.items() if name in ids}
        return replace(self, values=values, probabilities=probabilities, num_unknown=num_unknown)

    def inclusion(self, num_rows: int) -> tuple[dict[str, float], list[Wave]]:
        """Gives the probability that each label was drawn, and the waves of the draw.

        Probabilities are those in the file, never computed again from the verdicts: the labels may have been drawn by
        the scores of another detector. Without any, the labels count as one random wave.

        Raises:
            UserError: A probability is missing or not in (0, 1], or the last wave is incomplete.
        """
        if not self.waves and not self.probabilities:
            share = len(self.values) / num_rows
            return dict.fromkeys(self.values, share), [Wave(RANDOM, share)] if self.values else []
        hint = "give it for every label, or drop the column where every response had the same chance"
        if self.waves:
            hint = f"take out rows that were not drawn, and keep {WAVES} and {PROBABILITY} as label_next.csv had them"
        for name in self.values:
            if name not in self.probabilities:
                raise UserError(f"the label of {shorten(name)} has no {PROBABILITY}", hint=hint)
            if self.waves and name in self.without_waves:
                raise UserError(f"the label of {shorten(name)} has no {WAVES}", hint=hint)
            if not 0 < self.probabilities[name] <= 1:
                problem = f"the label of {shorten(name)} has an {PROBABILITY} of {self.probabilities[name]:g}"
                raise UserError(problem, hint="a probability is above 0 and at most 1")
        self.check_finished(to_draw=False)
        return self.probabilities, list(self.waves)

    def check_finished(self, *, to_draw: bool) -> None:
        """Refuses an incomplete last wave that would bias the rate.

        The probabilities assume that the whole wave is labelled. If chance chose the labelled part of a single wave,
        all probabilities are too high by the same factor, and the rate is right. Next to an earlier wave, or before a
        later one, it is not.

        Args:
            to_draw: Whether another wave is to be drawn.

        Raises:
            UserError: It is incomplete.
        """
        is_unbiased = len(self.waves) < 2 or all(wave.rule == RANDOM for wave in self.waves)
        if not self.num_open or (is_unbiased and not to_draw):
            return
        hint = "fill them first: the next draw counts on all of this one"
        if not to_draw:
            hint = "fill them, or give the label_next.csv of the wave before as you filled it"
        problem = f"labels of the last wave that are still empty: {self.num_open:,}"
        raise UserError(problem, place=self.open_at, hint=hint)


def read_labels(path: str, columns: Mapping[str, str], ids: Collection[str] | None) -> Labels:
    """Reads the labels of responses with these ids; those of others are counted and left out.

    Args:
        ids: None reads all.

    Raises:
        UserError: A column is missing, a label is none, or an id has two different labels.
    """
    known = None if ids is None else set(ids)
    values, probabilities = dict[str, float](), dict[str, float]()
    num_unknown = num_empty = num_repeated = 0
    waves, without_waves, unlabelled = dict[str, None](), set[str](), dict[str, str]()
    for number, row in enumerate(read_rows(Path(path), ReadReport())):
        if not number:
            require_columns(row, path, [(f"label_columns.{key}", name) for key, name in columns.items()])
        name, given = read_name(row, columns["id"]), row.values.get(columns["label"])
        if known is not None and name not in known:
            num_unknown += 1
            continue
        if given is None or not str(given).strip():
            num_empty += 1
            if row.values.get(WAVES) not in (None, ""):
                unlabelled.setdefault(name, row.place)
            continue
        label = VALUES.get(str(given).strip().lower())
        if label is None:
            hint = f"use {HALLUCINATED} or {FAITHFUL} (or 1 and 0), and leave it empty without a label"
            raise UserError(f"label {shorten(given)} of id {shorten(name)}", place=row.place, hint=hint)
        if name in values:
            if values[name] != label:
                hint = "keep one of them: construct.py pipeline=annotate adjudicates several annotators"
                raise UserError(f"id {shorten(name)} is labelled twice, and differently", place=row.place, hint=hint)
            num_repeated += 1
            continue
        values[name] = label
        if (text := row.values.get(WAVES)) not in (None, ""):
            waves[str(text)] = None
        else:
            without_waves.add(name)
        if (probability := read_number(row.values.get(PROBABILITY))) is not None:
            probabilities[name] = probability
    if not values and num_unknown:
        raise _unknown_labels(num_unknown, path)
    if len(waves) > 1:
        hint = "give the label_next.csv of the last run: it has all labels before"
        raise UserError(f"the labels are of {len(waves)} different draws", place=path, hint=hint)
    places = [place for name, place in unlabelled.items() if name not in values]  # annotators may share a wave
    return Labels(
        values=values,
        probabilities=probabilities,
        waves=_parse_waves(next(iter(waves), ""), path),
        without_waves=without_waves,
        num_unknown=num_unknown,
        num_empty=num_empty,
        num_repeated=num_repeated,
        num_open=len(places),
        open_at=next(iter(places), None),
    )


def _unknown_labels(number: int, path: str) -> UserError:
    hint = "are they of another file? label_columns.id=NAME names their column of ids"
    return UserError(f"none of {number:,} labels is of these responses", place=path, hint=hint)


def _parse_waves(text: str, path: str) -> list[Wave]:
    try:
        return read_waves(text) if text else []
    except ValueError as error:
        hint = f"leave the column {WAVES} as label_next.csv had it, or delete it where labels were drawn at random"
        raise UserError(f"column {WAVES!r}: {error}", place=path, hint=hint) from error


def join_labels(table: VerdictTable, labels: Labels | None) -> tuple[Verdicts, list[Wave]]:
    """Joins verdicts and labels.

    Returns:
        The rows, and the waves in which labels were drawn.

    Raises:
        UserError: As `Labels.inclusion`.
    """
    labels = labels or Labels({})
    values = np.array([labels.values.get(name, np.nan) for name in table.ids])
    probabilities, waves = labels.inclusion(len(table.ids))
    probability = np.array([probabilities.get(name, 1.0) for name in table.ids])
    return Verdicts.of(table.scores, values, table.groups, probability), waves
