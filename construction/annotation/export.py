"""Reads what Label Studio exports, JSON or JSON-MIN, and checks it against the rows of the project.

Each annotation is checked alone. One that is bad stops the reading, or with `on_bad_annotation=skip` is left out;
either way its kind and its place are told: construction/annotation/export_report.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from construction.annotation.controls import Answers, BadAnswer
from construction.annotation.export_report import ExportReport
from construction.annotation.exported_spans import placed_flags, read_spans
from construction.annotation.offsets import shown_text
from construction.annotation.project import KEY, AnnotationRow
from construction.annotation.schemes import Scheme
from construction.annotation.span_control import Spans
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import read_strict_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One annotator's answers about one row; spans count characters of the row's own text."""

    row: str
    annotator: str
    answers: Answers


def read_export(
    path: Path, scheme: Scheme, rows: Mapping[str, AnnotationRow], report: ExportReport
) -> list[Annotation]:
    """Reads all annotations, in the order of the rows and then of the annotators.

    Raises:
        UserError: The file is no export, or an annotation is bad under `on_bad_annotation=stop`.
    """
    found: dict[tuple[str, str], Annotation] = {}
    seen: dict[str, set[Any]] = {}
    for place, task_id, row_id, data, raws in _tasks(path):
        row = rows.get(row_id) if isinstance(row_id, str) else None
        if row is None:
            report.reject("unknown task", place, f"{KEY} is {shorten(row_id)}, which the project does not have")
            continue
        if changed := [name for name, text in row.texts.items() if data.get(name) != shown_text(text)]:
            report.reject("edited text", place, f"{' and '.join(changed)} of row {row.id} changed")
            continue
        others = seen.setdefault(row.id, set())
        if others and task_id not in others:
            report.count("task twice", place, f"row {row.id} is another task too")
        others.add(task_id)
        for raw in raws:
            where = f"{place}, annotation {raw.number}"
            if raw.cancelled:
                report.count("cancelled annotation", where, f"of row {row.id}, by {raw.annotator}")
                continue
            try:
                answers = _answers(scheme, row, raw.values, where, report)
            except BadAnswer as error:
                report.reject(error.kind, where, str(error))
                continue
            if (row.id, raw.annotator) in found:
                report.count("annotator twice", where, f"{raw.annotator} annotated row {row.id} before")
            found[row.id, raw.annotator] = Annotation(row=row.id, annotator=raw.annotator, answers=answers)
    annotated = {row for row, _ in found}
    for row_id in rows:
        if row_id not in seen:
            report.count("missing task", str(path), f"row {row_id}")
        elif row_id not in annotated:
            report.count("task without annotation", str(path), f"row {row_id}")
    order = {row: place for place, row in enumerate(rows)}
    return [found[key] for key in sorted(found, key=lambda key: (order[key[0]], key[1]))]


@dataclass(frozen=True, slots=True)
class _Raw:
    """One annotation before it is checked; `values` are results by the name of their tag."""

    number: str
    annotator: str
    cancelled: bool
    values: Mapping[str, Sequence[Any]]


def _tasks(path: Path) -> Iterator[tuple[str, Any, Any, Mapping[str, Any], list[_Raw]]]:
    """The tasks of an export: place, Label Studio's number, our row's id, its data and its annotations."""
    hint = "export JSON or JSON-MIN from Label Studio, and name that file"
    tasks = read_strict_json(path, hint=hint)
    if not isinstance(tasks, list) or not all(isinstance(task, Mapping) for task in tasks):
        raise UserError("not an export of Label Studio: it must be a list of tasks", place=str(path), hint=hint)
    if not tasks:
        raise UserError("the export has no tasks", place=str(path), hint=hint)
    for index, task in enumerate(tasks):
        place = f"{path}, task {task.get('id', index)}"
        if "data" in task and isinstance(task["data"], Mapping):
            annotations = task.get("annotations", [])
            if not isinstance(annotations, list) or not all(isinstance(one, Mapping) for one in annotations):
                raise UserError("annotations must be a list of objects", place=place, hint=hint)
            raws = [_of_json(one, place) for one in annotations]
            yield place, task.get("id"), task["data"].get(KEY), task["data"], raws
        elif KEY in task:
            yield place, task.get("id"), task[KEY], task, _of_json_min(task)
        else:
            raise UserError(f"no task of this project: neither data nor {KEY} is in it", place=place, hint=hint)


def _of_json(annotation: Mapping[str, Any], place: str) -> _Raw:
    values: dict[str, list[Any]] = {}
    results = annotation.get("result") or []
    for result in results if isinstance(results, list) else [results]:
        if not isinstance(result, Mapping) or "from_name" not in result:
            values.setdefault("", []).append(result)  # a relation between spans, or worse: no tag of ours
        else:
            values.setdefault(str(result["from_name"]), []).append(result.get("value"))
    number = str(annotation.get("id", "?"))
    return _Raw(number, _name(annotation.get("completed_by")), bool(annotation.get("was_cancelled")), values)


_OWN_FIELDS = ("id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement", KEY)


def _of_json_min(task: Mapping[str, Any]) -> list[_Raw]:
    """JSON-MIN has one entry an annotation; what is neither data nor Label Studio's own are answers."""
    if task.get("annotation_id") is None:
        return []
    values = {
        name: value if isinstance(value, list) else [value]
        for name, value in task.items()
        if name not in _OWN_FIELDS and value is not None
    }
    return [_Raw(str(task["annotation_id"]), _name(task.get("annotator")), False, values)]


def _name(given: Any) -> str:
    """An annotator: Label Studio gives a number, or an object with an address."""
    if isinstance(given, Mapping):
        given = given.get("email") or given.get("username") or given.get("id")
    return "unknown" if given is None else str(given)


def _answers(
    scheme: Scheme, row: AnnotationRow, values: Mapping[str, Sequence[Any]], place: str, report: ExportReport
) -> Answers:
    answers: Answers = {}
    known = set(row.texts)
    for question in scheme.questions:
        given = list(values.get(question.name, ()))
        known.add(question.name)
        if isinstance(question, Spans):
            known.add(question.flags_name)
            given += placed_flags(given, values.get(question.flags_name, ()), row, place, report)
            answers[question.name] = read_spans(question.read(given), row, place, report)
        elif given:
            answers[question.name] = question.read(given)
        elif question.required:
            report.count("unanswered question", place, f"{question.name} of row {row.id}")
    if unknown := sorted(values.keys() - known):
        raise BadAnswer("unknown question", f"the scheme has no tag {shorten(unknown[0])}")
    return answers


def annotators_of(annotations: Sequence[Annotation], rows: Mapping[str, AnnotationRow]) -> Counter[int]:
    """Counts rows by their number of annotators, those without any too."""
    by_row = Counter(annotation.row for annotation in annotations)
    return Counter(by_row[row] for row in rows)


def to_line(annotation: Annotation, row: AnnotationRow) -> dict[str, Any]:
    """Converts an annotation to a line of annotations.jsonl, which measuring agreement needs nothing else for."""
    head = {"id": annotation.row, "annotator": annotation.annotator, "group": row.example.group}
    system = {"system": row.system, "item": row.example.id} if row.system else {}
    return {**head, **system, "length": len(row.text), "answers": annotation.answers}
