"""RAGTruth's sources, which its responses should be faithful to: `source_info.jsonl` as texts by source id."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data_modules.datasets.span_checks import identifier
from data_modules.reading.rows import BadRow, ReadReport, Row, read_rows
from faithkit.errors import UserError

SOURCES = "source_info.jsonl"
FIELDS = ("source_id", "task_type", "source_info")
TASKS = {"qa": "QA", "summary": "Summary", "data2txt": "Data2txt"}


class SourceText(NamedTuple):
    """One source as text, with the task and the question that its responses answer."""

    task: str
    corpus: str
    knowledge: str
    question: str


def rows_with_ids(file: Path, name: str, fields: Sequence[str], report: ReadReport) -> Iterator[tuple[Row, str]]:
    """The rows that have these fields, with their ids, each id once."""
    seen: dict[str, str] = {}
    for row in read_rows(file, report):
        try:
            row.layout({file.name: fields})
            row_id = identifier(row, name)
            if row_id in seen:
                raise BadRow(f"field {name!r} is {row_id!r}, which was already given by {seen[row_id]}")
            seen[row_id] = f"line {row.line}"
            yield row, row_id
        except BadRow as error:
            report.reject(row.file, row.line, error, row.values)


def read_sources(file: Path, report: ReadReport) -> dict[str, SourceText]:
    """The sources by their ids."""
    if not file.is_file():
        raise UserError(f"no {SOURCES} beside the responses", place=str(file), hint="put both official files there")
    sources: dict[str, SourceText] = {}
    for row, source_id in rows_with_ids(file, "source_id", FIELDS, report):
        try:
            sources[source_id] = _source(row)
        except BadRow as error:
            report.reject(row.file, row.line, error, row.values)
    return sources


def _source(row: Row) -> SourceText:
    task = row.choice("task_type", TASKS)
    corpus = row.text("source", empty_ok=True)
    if task == "Summary":
        return SourceText(task, corpus, row.text("source_info"), "")
    info = row.inside(row.values["source_info"])
    if task == "QA":
        return SourceText(task, corpus, info.text("passages"), info.text("question"))
    rendered = row.inside({"source_info": render(info.values)})
    return SourceText(task, corpus, rendered.text("source_info"), "")


def render(values: Mapping[str, Any]) -> str:
    """Writes a JSON object as lines `name: value`, nested names joined by dots and list items numbered from 1.

    Null, true and false stay as JSON writes them: an answer that takes null for "no" is marked so.
    """
    lines = []
    stack: list[tuple[str, Any]] = [("", values)]
    while stack:
        name, value = stack.pop()
        if isinstance(value, Mapping) and value:
            stack += [(f"{name}.{key}" if name else str(key), inner) for key, inner in reversed(list(value.items()))]
        elif isinstance(value, list) and value:
            stack += [(f"{name}.{place}", value[place - 1]) for place in range(len(value), 0, -1)]
        else:
            lines.append(f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines)
