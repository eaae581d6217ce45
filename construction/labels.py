"""Tables that people fill in: how they are written and read, the columns of verdicts in them, and people's labels.

Tables are CSV in UTF-8, as spreadsheets save it. The header decides whether commas, semicolons or tabs separate cells.
A cell that a spreadsheet would take for a formula is written with an apostrophe before it, which reading removes.

Scoring adds `label`, `probability` and `spans`. If the table has one of these, all three are named `faithkit_label` and
so on; if it has one of those too, `faithkit_label_2`, then `_3`. So a table can have the verdicts of several detectors:
the newest have the highest number, and all columns of one detector have the same.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from data_modules.reading.rows import ReadReport, Row, read_rows
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import atomic_file, disk_errors
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit.settings.config_files import RANDOM
from faithkit.statistics.prediction_powered import Wave, read_waves

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a formula begins with
LABEL, PROBABILITY = "label", "probability"
VERDICT = (LABEL, PROBABILITY, "spans")
_ADDED = re.compile(r"faithkit_(.+?)(?:_([2-9]|[1-9]\d+))?")
LABELS = {
    **dict.fromkeys((HALLUCINATED, "1", "1.0", "true", "yes"), 1.0),
    **dict.fromkeys((FAITHFUL, "0", "0.0", "false", "no"), 0.0),
}
WAVES, INCLUSION = "waves", "inclusion_probability"  # columns of label_next.csv
MAX_NAMES = 12  # columns in a hint


def write_sheet(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> int:
    """Replaces a table in one step, and counts its rows."""
    lines = chain(
        [columns],
        (["" if row.get(name) is None else escape_formula(str(row[name])) for name in columns] for row in rows),
    )
    with atomic_file(path) as file:
        for number, cells in enumerate(lines):
            text = io.StringIO(newline="")
            csv.writer(text, lineterminator="\r\n").writerow(cells)
            encoding = "utf-8" if number else "utf-8-sig"  # spreadsheets recognize UTF-8 by its mark
            with disk_errors(path):
                file.write(text.getvalue().encode(encoding, errors="backslashreplace"))
    return number


def read_sheet(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the place and the cells of each row; skips other columns and empty rows.

    Raises:
        UserError: A column is missing, or the file is not valid CSV.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")  # line ends within cells stay as they are
    except UnicodeDecodeError as error:
        raise UserError("not UTF-8 text", place=str(path), hint="save it as CSV UTF-8") from error
    header = text.split("\n", 1)[0]
    delimiter = max((",", ";", "\t"), key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = next(reader, [])
        if missing := [name for name in columns if name not in names]:
            problem = f"there is no column {missing[0]!r}: the table has {shorten(', '.join(names) or 'nothing')}"
            raise UserError(problem, place=str(path), hint="leave the header as it was written")
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            place = f"{path}, line {reader.line_num}"
            if len(cells) != len(names):
                problem = f"{len(cells)} cells where the header has {len(names)}"
                raise UserError(problem, place=place, hint="quote cells that contain the separator")
            found = dict(zip(names, cells, strict=True))
            kept = {name: found[name] for name in columns}
            for name, cell in kept.items():  # what `escape_formula` put before a cell is taken off
                if cell.startswith("'") and cell.lstrip("'").startswith(FORMULA):
                    kept[name] = cell[1:]
            yield place, kept
    except csv.Error as error:
        raise UserError(
            f"broken CSV: {error}", place=f"{path}, line {reader.line_num}", hint="save it again"
        ) from error


def escape_formula(text: str) -> str:
    """Writes a cell that spreadsheets do not take for a formula."""
    return f"'{text}" if text.lstrip("'").startswith(FORMULA) else text


def normalize_spaces(text: str) -> str:
    """Replaces all white space by single spaces, since editors change it."""
    return " ".join(text.split())


def added_names(columns: Collection[str], names: Sequence[str]) -> dict[str, str]:
    """Names the columns to add: plainly, or with a number above those that exist."""
    last = _last(columns, names)
    return {name: _named(name, 0 if last is None else last + 1) for name in names}


def newest_names(columns: Collection[str], names: Sequence[str] = VERDICT) -> dict[str, str]:
    """Names the columns that were added last."""
    return {name: _named(name, _last(columns, names) or 0) for name in names}


def score_names(label: str, columns: Collection[str]) -> Iterator[str]:
    """Yields the possible names of the probability that belongs to a label, the likeliest first.

    Scoring adds both columns with the same number: if that probability exists, it is the only candidate.
    """
    place = _place(label, (LABEL,))
    if place and (probability := _named(PROBABILITY, place)) in columns:
        yield probability
        return
    yield from dict.fromkeys((newest_names(columns, [PROBABILITY])[PROBABILITY], PROBABILITY, "score"))


def _last(columns: Collection[str], names: Collection[str]) -> int | None:
    return max((place for column in columns if (place := _place(column, names)) is not None), default=None)


def _place(column: str, names: Collection[str]) -> int | None:
    """Reads the number of a column: 0 for a plain name, 1 for `faithkit_` without a number; None for other columns."""
    if column in names:
        return 0
    found = _ADDED.fullmatch(column)
    return int(found[2] or 1) if found and found[1] in names else None


def _named(name: str, place: int) -> str:
    return (name, f"faithkit_{name}")[place] if place < 2 else f"faithkit_{name}_{place}"


@dataclass(frozen=True, slots=True)
class Labels:
    """People's labels by id, how they were drawn, and what was skipped.

    Args:
        probabilities: That each labelled response was chosen, by any of the waves; empty if the file has none.
        without_waves: Ids of labels without waves.
        skipped: Counts by reason.
        num_open: Responses of the last wave that are not labelled yet.
        open_at: The place of the first of them.
    """

    values: dict[str, float]
    probabilities: dict[str, float] = field(default_factory=dict)
    waves: Sequence[Wave] = ()
    without_waves: Collection[str] = ()
    skipped: Counter[str] = field(default_factory=Counter)
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
            hint = "are they of another file? label_columns.id=NAME names their column of ids"
            raise UserError(f"none of {num_unknown:,} labels is of these responses", place=path, hint=hint)
        probabilities = {name: value for name, value in self.probabilities.items() if name in ids}
        skipped = self.skipped + Counter({"of ids that have no verdict": num_unknown})
        return replace(self, values=values, probabilities=probabilities, skipped=skipped)

    def inclusion(self, num_rows: int) -> tuple[dict[str, float], list[Wave]]:
        """Gives the probability that each label was drawn, and the waves of the draw.

        Probabilities are those in the file, never computed again from the verdicts: the labels may have been drawn by
        the scores of another detector. Without any, the labels count as one random wave.

        Raises:
            UserError: A probability is missing or not in (0, 1].
        """
        if not self.waves and not self.probabilities:
            share = len(self.values) / num_rows
            return dict.fromkeys(self.values, share), [Wave(RANDOM, share)] if self.values else []
        hint = "give it for every label, or drop the column where every response had the same chance"
        if self.waves:
            hint = f"take out rows that were not drawn, and keep {WAVES} and {INCLUSION} as label_next.csv had them"
        for name in self.values:
            if name not in self.probabilities:
                raise UserError(f"the label of {shorten(name)} has no {INCLUSION}", hint=hint)
            if self.waves and name in self.without_waves:
                raise UserError(f"the label of {shorten(name)} has no {WAVES}", hint=hint)
            if not 0 < self.probabilities[name] <= 1:
                problem = f"the label of {shorten(name)} has an {INCLUSION} of {self.probabilities[name]:g}"
                raise UserError(problem, hint="a probability is above 0 and at most 1")
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


def read_labels(path: str, columns: Mapping[str, str]) -> Labels:
    """Reads people's labels.

    Raises:
        UserError: A column is missing, a label is none, or an id has two different labels.
    """
    values, probabilities = dict[str, float](), dict[str, float]()
    skipped = Counter[str]()
    waves, without_waves, unlabelled = dict[str, None](), set[str](), dict[str, str]()
    for number, row in enumerate(read_rows(Path(path), ReadReport())):
        if not number:
            require_columns(row, path, [(f"label_columns.{key}", name) for key, name in columns.items()])
        name, given = read_name(row, columns["id"]), row.values.get(columns["label"])
        if given is None or not str(given).strip():
            skipped["still empty"] += 1
            if row.values.get(WAVES) not in (None, ""):
                unlabelled.setdefault(name, row.place)
            continue
        label = LABELS.get(str(given).strip().lower())
        if label is None:
            hint = f"use {HALLUCINATED} or {FAITHFUL} (or 1 and 0), and leave it empty without a label"
            raise UserError(f"label {shorten(given)} of id {shorten(name)}", place=row.place, hint=hint)
        if name in values:
            if values[name] != label:
                hint = "keep one of them: construct.py pipeline=annotate adjudicates several annotators"
                raise UserError(f"id {shorten(name)} is labelled twice, and differently", place=row.place, hint=hint)
            skipped["given twice alike, counted once"] += 1
            continue
        values[name] = label
        if (text := row.values.get(WAVES)) not in (None, ""):
            waves[str(text)] = None
        else:
            without_waves.add(name)
        if (probability := read_number(row.values.get(INCLUSION))) is not None:
            probabilities[name] = probability
    if len(waves) > 1:
        hint = "give the label_next.csv of the last run: it has all labels before"
        raise UserError(f"the labels are of {len(waves)} different draws", place=path, hint=hint)
    try:
        drawn = read_waves(next(iter(waves))) if waves else []
    except ValueError as error:
        hint = f"leave the column {WAVES} as label_next.csv had it, or delete it where labels were drawn at random"
        raise UserError(f"column {WAVES!r}: {error}", place=path, hint=hint) from error
    places = [place for name, place in unlabelled.items() if name not in values]  # annotators may share a wave
    return Labels(
        values=values,
        probabilities=probabilities,
        waves=drawn,
        without_waves=without_waves,
        skipped=skipped,
        num_open=len(places),
        open_at=next(iter(places), None),
    )


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


def read_name(row: Row, column: str) -> str:
    """Reads a cell that every row needs."""
    value = row.values.get(column)
    if value in (None, "") or isinstance(value, list | dict):
        raise UserError(f"column {column!r} is missing or empty", place=row.place, hint="every row needs one")
    return str(value)


def read_number(value: Any) -> float | None:
    """Reads a finite number; None if there is none."""
    if isinstance(value, bool) or value in (None, ""):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None
