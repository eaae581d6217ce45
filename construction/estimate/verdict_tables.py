"""Reads the table of a detector's verdicts of which an estimate is made; people's labels: `estimate_labels`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from construction.estimate.verdict_columns import LABEL, newest_label, score_names
from data_modules.reading.rows import ReadReport, Row, read_rows
from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED
from faithkit.statistics.label_sampling import RANDOM, Wave, inclusion_probabilities, read_waves
from faithkit.statistics.prediction_powered import Verdicts
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


WAVES, CHANCE = "waves", "inclusion_probability"


@dataclass(frozen=True, slots=True)
class Labels:
    """People's labels: by id, with how they were drawn where the file tells, and what was passed over.

    Args:
        chances: With which each was to be labelled, by any of the waves.
        without_waves: Ids whose row tells no waves.
        num_open: Responses of the last wave that nobody has labelled yet.
        open_at: Where the first of them stands.
    """

    values: dict[str, float]
    chances: dict[str, float] = field(default_factory=dict)
    waves: Sequence[Wave] = ()
    without_waves: Collection[str] = ()
    num_unknown: int = 0
    num_empty: int = 0
    num_repeated: int = 0
    num_open: int = 0
    open_at: str | None = None


def read_labels(path: str, columns: Mapping[str, str], ids: Sequence[str] | None) -> Labels:
    """Reads the labels of responses with these ids; those of others are counted and left out.

    Args:
        ids: None reads all, for `labels_of` to leave out those of others.

    Raises:
        UserError: A column is missing, a label is none, or an id is labelled twice and differently.
    """
    known = None if ids is None else set(ids)
    values, chances = dict[str, float](), dict[str, float]()
    unknown = empty = repeated = 0
    waves: dict[str, None] = {}
    without_waves, still_open = set[str](), dict[str, str]()
    first: Row | None = None
    for row in read_rows(Path(path), ReadReport()):
        if first is None:
            first = row
            need_columns(row, path, [(f"label_columns.{key}", name) for key, name in columns.items()])
        name, given = id_of(row, columns["id"]), row.values.get(columns["label"])
        if known is not None and name not in known:
            unknown += 1
            continue
        if given is None or not str(given).strip():
            empty += 1
            if row.values.get(WAVES) not in (None, ""):
                still_open.setdefault(name, row.place)
            continue
        label = VALUES.get(str(given).strip().lower())
        if label is None:
            hint = f"use {HALLUCINATED} or {FAITHFUL} (or 1 and 0), and leave it empty where nobody labelled"
            raise UserError(f"label {shorten(given)} of id {shorten(name)}", place=row.place, hint=hint)
        if name in values:
            if values[name] != label:
                hint = "keep one of them: construct.py pipeline=annotate adjudicates several annotators"
                raise UserError(f"id {shorten(name)} is labelled twice, and differently", place=row.place, hint=hint)
            repeated += 1
            continue
        values[name] = label
        if (text := row.values.get(WAVES)) not in (None, ""):
            waves[str(text)] = None
        else:
            without_waves.add(name)
        if (chance := number_of(row.values.get(CHANCE))) is not None:
            chances[name] = chance
    if not values and unknown:
        raise _strange(unknown, path)
    if len(waves) > 1:
        hint = "give the label_next.csv of the last run: it has all labels before"
        raise UserError(f"the labels are of {len(waves)} different draws", place=path, hint=hint)
    drawn = _waves(next(iter(waves), ""), path)
    places = [place for name, place in still_open.items() if name not in values]  # who shares the work fills other rows
    return Labels(
        values=values,
        chances=chances,
        waves=drawn,
        without_waves=without_waves,
        num_unknown=unknown,
        num_empty=empty,
        num_repeated=repeated,
        num_open=len(places),
        open_at=next(iter(places), None),
    )


def labels_of(labels: Labels, found: Collection[str], path: str) -> Labels:
    """Leaves out the labels of responses that were not found.

    Raises:
        UserError: None is left.
    """
    values = {name: value for name, value in labels.values.items() if name in found}
    unknown = len(labels.values) - len(values)
    if unknown and not values:
        raise _strange(unknown, path)
    chances = {name: chance for name, chance in labels.chances.items() if name in found}
    return replace(labels, values=values, chances=chances, num_unknown=unknown)


def _strange(number: int, path: str) -> UserError:
    hint = "are they of another file? label_columns.id=NAME says where their ids stand"
    return UserError(f"none of {number:,} labels is of these responses", place=path, hint=hint)


def joined(table: Table, labels: Labels | None) -> tuple[Verdicts, list[Wave]]:
    """Joins verdicts and labels, with the probability of each labelled response to be labelled.

    Probabilities are those that the labels tell, never worked out again from these verdicts: the labels may have been
    drawn by the scores of another detector.

    Returns:
        The rows, and the waves in which labels were drawn: one at random where the file does not tell.

    Raises:
        UserError: Some labels tell how they were drawn and others do not, or as `check_finished` has it.
    """
    given = labels or Labels({})
    values = np.array([given.values.get(name, np.nan) for name in table.ids])
    known = np.isfinite(values)
    waves, chance = list(given.waves), np.ones(len(table.ids))
    if waves or given.chances:
        check_chances(given)
        check_finished(given, to_draw=False)
        chance = np.array([given.chances.get(name, 1.0) for name in table.ids])
    elif known.any():
        waves = [Wave(RANDOM, float(known.mean()))]
        chance = inclusion_probabilities(waves, table.scores)
    return Verdicts.of(table.scores, values, table.groups, chance), waves


def check_chances(labels: Labels) -> None:
    """Refuses labels of which some tell how they were drawn, and others do not.

    Raises:
        UserError: One lacks its probability, or the waves that others have.
    """
    hint = "give it for every label, or drop the column where every response had the same chance"
    if labels.waves:
        hint = f"take out rows that were not drawn, and keep {WAVES} and {CHANCE} as label_next.csv had them"
    for name in labels.values:
        if name not in labels.chances:
            raise UserError(f"the label of {shorten(name)} has no {CHANCE}", hint=hint)
        if labels.waves and name in labels.without_waves:
            raise UserError(f"the label of {shorten(name)} has no {WAVES}", hint=hint)


def check_finished(labels: Labels, *, to_draw: bool) -> None:
    """Refuses a last wave that is labelled in part where that makes a rate wrong.

    The probabilities count on all of it. Its labelled part alone weighs right where chance chose it, since all
    probabilities are too high by the same factor; beside an earlier wave, or before a later one, they are not.

    Args:
        to_draw: A later wave is to be drawn.

    Raises:
        UserError: It is labelled in part.
    """
    alone = len(labels.waves) < 2 or all(wave.rule == RANDOM for wave in labels.waves)
    if not labels.num_open or (alone and not to_draw):
        return
    hint = "fill them first: the next draw counts on all of this one"
    if not to_draw:
        hint = "fill them, or give the label_next.csv of the wave before as you filled it"
    problem = f"labels of the last wave that are still empty: {labels.num_open:,}"
    raise UserError(problem, place=labels.open_at, hint=hint)


def _waves(text: str, path: str) -> list[Wave]:
    if not text:
        return []
    try:
        return read_waves(text)
    except ValueError as error:
        hint = f"leave the column {WAVES} as label_next.csv had it, or delete it where labels were drawn at random"
        raise UserError(f"column {WAVES!r}: {error}", place=path, hint=hint) from error
