"""A table of one's own: rows to examples, and the same rows back with a detector's verdicts beside them."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from data_modules.reading.fields import alternate
from data_modules.reading.rows import BadRow, ReadReport, Row, check_text, read_rows
from faithkit.errors import UserError, shorten
from faithkit.evaluation.intervals import Groups, Metric, bootstrap, means
from faithkit.evaluation.tables import figures_table, harmless, percent
from faithkit.files.atomic import dumps, write_text
from faithkit.files.jsonl import write_json, write_jsonl
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction, Turn

ADDED = ("label", "probability", "spans")
MAX_PARTS = 50  # values of `by` that the table shows; a column of free text has thousands
DELIMITERS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Rows as the file has them, with the example of each (None where a row could not be used), and the rejects."""

    values: list[Mapping[str, Any]]
    by_row: list[Example | None]
    rejects: list[dict[str, Any]]

    @property
    def examples(self) -> list[Example]:
        return [example for example in self.by_row if example is not None]


def read_own_rows(
    path: str,
    columns: Mapping[str, str | None],
    *,
    join: Callable[[Sequence[str]], str],
    by: str | None,
    on_bad_row: str,
    num_rows: int | None,
) -> OwnRows:
    """Reads .csv, .tsv, .jsonl or .json.

    Args:
        columns: The names of the columns that hold knowledge, response, history, id and group; null for none.
        join: Makes one text of a list of passages, as the detector was trained to read them.
        by: A column that every row must have.

    Raises:
        UserError: A column is missing, a text is empty, or an id is given twice (with `on_bad_row=stop`).
    """
    report = ReadReport(on_bad_row)
    values: list[Mapping[str, Any]] = []
    by_row: list[Example | None] = []
    seen: dict[str, str] = {}
    for row in islice(read_rows(Path(path), report), num_rows):
        example = None
        try:
            dumps(row.values)
        except (ValueError, RecursionError) as error:  # NaN: the row could not be written back
            report.reject(row.file, row.line, BadRow(f"the row cannot be written as JSON: {error}"), row.values)
            continue
        try:
            example = _example(row, columns, join, by)
            if example.id in seen:
                raise BadRow(f"id {example.id!r} was already given by {seen[example.id]}")
            seen[example.id] = row.place
        except ValueError as error:
            report.reject(row.file, row.line, BadRow.of(error), row.values)
            example = None
        values.append(row.values)
        by_row.append(example)
    if not any(by_row):
        raise UserError("no row can be scored", place=path, hint="set columns.knowledge and columns.response")
    return OwnRows(values, by_row, report.rejects)


def _example(
    row: Row, columns: Mapping[str, str | None], join: Callable[[Sequence[str]], str], by: str | None
) -> Example:
    if by is not None and by not in row.values:
        raise BadRow(f"there is no column {by!r} to count by; the row has {', '.join(row.values)}")
    knowledge_column, response_column = columns["knowledge"] or "knowledge", columns["response"] or "response"
    passages = row.values.get(knowledge_column)
    joined = join(row.texts(knowledge_column)) if isinstance(passages, list) else passages
    knowledge = check_text(joined, knowledge_column, have=row.values)
    name = _named(row, columns["id"]) or row.default_id
    group = _named(row, columns["group"]) or name
    return Example(
        id=name,
        source="own rows",
        split="all",
        group=group,
        knowledge=knowledge,
        response=row.text(response_column),
        history=_history(row, columns["history"]),
    )


def _named(row: Row, column: str | None) -> str:
    """Reads the id or group that a row names; empty where no column is given."""
    if column is None:
        return ""
    if row.values.get(column) in (None, ""):
        raise BadRow(f"column {column!r} is missing or empty")
    if isinstance(row.values[column], list | dict):
        raise BadRow(f"column {column!r} must hold texts or numbers, got {shorten(row.values[column])}")
    return check_text(str(row.values[column]), column)


def _history(row: Row, column: str | None) -> tuple[Turn, ...]:
    """Reads a list of texts, a list of {speaker, text}, or one text: the last turn."""
    turns = row.values.get(column) if column else None
    if not turns:
        return ()
    if isinstance(turns, str):
        return alternate([check_text(turns, column or "")])
    if isinstance(turns, list) and all(isinstance(turn, dict) for turn in turns):
        return tuple(
            Turn(speaker=row.inside(turn).text("speaker"), text=row.inside(turn).text("text")) for turn in turns
        )
    return alternate(row.texts(column or ""))


def write_scored(path: Path, rows: OwnRows, predictions: Sequence[Prediction]) -> None:
    """Writes the rows as they were, in the format of the path's suffix, with label, probability and spans added.

    A column of the file's own that has one of these names keeps it; ours is then called `faithkit_label` and so on.
    """
    taken = {name for row in rows.values for name in row}
    names = {name: f"faithkit_{name}" if name in taken else name for name in ADDED}
    by_id = {prediction.id: prediction for prediction in predictions}
    scored = [
        {**row, **{names[name]: value for name, value in _verdict(example, by_id).items()}}
        for row, example in zip(rows.values, rows.by_row, strict=True)
    ]
    if path.suffix in DELIMITERS:
        write_table(path, scored, DELIMITERS[path.suffix])
    elif path.suffix == ".json":
        write_json(path, scored)
    else:
        write_jsonl(path, scored)


def _verdict(example: Example | None, by_id: Mapping[str, Prediction]) -> dict[str, Any]:
    if example is None:
        return dict.fromkeys(ADDED)
    prediction = by_id[example.id]
    spans = [
        {"start": s.start, "end": s.end, "text": example.response[s.start : s.end], "label": s.label, "score": s.score}
        for s in prediction.spans
    ]
    return {"label": prediction.label, "probability": prediction.score, "spans": spans}


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], delimiter: str) -> None:
    """Writes rows as .csv or .tsv, with the columns of them all in order of appearance."""
    header = list(dict.fromkeys(name for row in rows for name in row))
    cells = [header, *([_cell(row.get(name)) for name in header] for row in rows)]
    text = io.StringIO(newline="")
    if delimiter == "\t":  # unquoted, as TSV is read here: white space within a cell becomes a space
        text.writelines("\t".join(re.sub(r"[\t\r\n]", " ", cell) for cell in line) + "\n" for line in cells)
    else:
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(cells)
    write_text(path, text.getvalue())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()  # half a surrogate pair of a JSON file


def share_table(rows: OwnRows, predictions: Sequence[Prediction], *, by: str | None, num_resamples: int) -> Table:
    """Shows the share of hallucinated responses with its interval, of all rows and of each value of the column `by`."""
    pairs = [(row, example) for row, example in zip(rows.values, rows.by_row, strict=True) if example is not None]
    verdicts = {prediction.id: prediction.label for prediction in predictions}
    judged = [(row, example) for row, example in pairs if verdicts[example.id] not in (None, UNPARSED)]
    heads = ("rows", "hallucinated")
    table = figures_table("Hallucinated responses, percent", by or "", heads, no_wrap=heads, show_edge=True)
    for name, part in _parts(judged, by):
        share = _share([example for _, example in part], verdicts, num_resamples)
        table.add_row(Text(harmless(name, 60)), f"{len(part):,}", percent(share))
    captions = ["95% intervals over groups of rows, as the detector calls them: its own errors are not in them"]
    if len(judged) < len(rows.values):
        captions.append(f"{len(rows.values) - len(judged):,} rows have no verdict and do not count")
    table.caption = Text("\n".join(captions))
    return table


def _parts(judged: Sequence[tuple[Mapping[str, Any], Example]], by: str | None) -> Iterator[tuple[str, list[Any]]]:
    """Gives all rows, then those of each value of `by`, the most frequent first."""
    yield "all", list(judged)
    if by is None:
        return
    parts: dict[str, list[Any]] = {}
    for row, example in judged:
        parts.setdefault(str(row[by]), []).append((row, example))
    ordered = sorted(parts.items(), key=lambda part: (-len(part[1]), part[0]))
    yield from ordered[:MAX_PARTS]
    if others := [pair for _, part in ordered[MAX_PARTS:] for pair in part]:
        yield f"the other {len(ordered) - MAX_PARTS} values", others


def _share(examples: Sequence[Example], verdicts: Mapping[str, str | None], num_resamples: int) -> Metric | None:
    if not examples:
        return None
    groups = Groups.of(example.group for example in examples)
    called = np.array([verdicts[example.id] == HALLUCINATED for example in examples], np.float64)
    scored = bootstrap(groups, means(groups, {"share": called}), shares=True, num_resamples=num_resamples)
    return scored.metrics["share"]
