"""Reads exports of Label Studio, JSON or JSON-MIN, and checks them against the rows of the project.

A bad annotation stops the reading, or is left out with `on_bad_annotation=skip`. Problems are counted by kind, and
listed with their places. Spans get offsets in characters of the original text, checked against their quotes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from construction.annotation.project import KEY, AnnotationRow, from_utf16, same_quote, shown_text, to_original
from construction.annotation.questions import Answers, BadAnswer, Spans
from construction.annotation.schemes import Scheme
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import read_strict_json

STOP, SKIP = "stop", "skip"
# Problems that stop the reading, or leave out the annotation.
BAD = {
    "unknown task": "a task of a row that the project does not have",
    "edited text": "a task with another text than its row",
    "unknown question": "a result of a tag that the scheme does not have",
    "unknown label": "a label that the scheme does not have",
    "several labels": "more labels than the question allows",
    "number out of range": "a rating or round outside its scale",
    "unreadable answer": "a result that is not in Label Studio's form",
    "offsets beyond the text": "a span that ends behind its text, or begins before it",
    "empty span": "a span without a character",
    "text at another place": "a span with another text at its offsets than it quotes",
}
# Problems that every project has, and that do not stop the reading.
COUNTED = {
    "missing task": "a row that the export does not have",
    "task without annotation": "not annotated, or all annotations were cancelled",
    "cancelled annotation": "skipped by its annotator: left out",
    "task twice": "imported twice: its annotations are read together",
    "annotator twice": "one annotator's second annotation of a row: the later one counts",
    "unanswered question": "a required question without an answer: the rest counts",
    "overlapping spans": "of one label: joined; of several labels: kept as they are",
    "flag without its span": "JSON-MIN does not say of which span a flag is: left out where there are several",
    "offsets in UTF-16 units": "of an old Label Studio: converted to characters",
}
HINT = "correct it in Label Studio and export again, or set pipeline.on_bad_annotation=skip to leave it out"


@dataclass(slots=True)
class ExportReport:
    """The faults that reading found: counts by kind, and each with its place."""

    on_bad_annotation: str = STOP
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[dict[str, str]] = field(default_factory=list)

    def count(self, kind: str, place: str, problem: str) -> None:
        """Counts what does not stop the reading."""
        self.counts[kind] += 1
        self.problems.append({"kind": kind, "place": place, "problem": problem})

    def reject(self, kind: str, place: str, problem: str) -> None:
        """Stops, or counts and goes on."""
        if self.on_bad_annotation == STOP:
            raise UserError(f"{kind}: {problem}", place=place, hint=HINT)
        self.count(kind, place, problem)


def placed_flags(
    spans: Sequence[Any], flags: Sequence[Any], row: AnnotationRow, place: str, report: ExportReport
) -> list[Any]:
    """Adds the places of flags, which JSON-MIN lacks: there they belong to the only span, or are left out."""
    placed = []
    for value in flags:
        if isinstance(value, Mapping) and "start" in value:
            placed.append(value)
        elif len(spans) == 1 and isinstance(spans[0], Mapping):
            where = {name: spans[0].get(name) for name in ("start", "end")}
            placed.append({**where, "choices": value.get("choices") if isinstance(value, Mapping) else value})
        else:
            report.count("flag without its span", place, f"{shorten(value)} of row {row.id}: export JSON, not JSON-MIN")
    return placed


def read_spans(
    given: list[dict[str, Any]], row: AnnotationRow, place: str, report: ExportReport
) -> list[dict[str, Any]]:
    spans = []
    for span, (start, end, converted) in zip(given, _places(given, shown_text(row.text)), strict=True):
        if converted:
            report.count("offsets in UTF-16 units", place, f"{span['start']} to {span['end']} of row {row.id}")
        spans.append(
            {"start": to_original(row.text, start), "end": to_original(row.text, end), "label": span["label"]}
            | ({"flags": span["flags"]} if span.get("flags") else {})
        )
    joined, overlaps = join_overlaps(spans)
    for _ in range(overlaps):
        report.count("overlapping spans", place, f"in row {row.id}")
    return joined


def _places(spans: Sequence[Mapping[str, Any]], text: str) -> list[tuple[int, int, bool]]:
    """Offsets of spans in characters, and whether they had to be converted from UTF-16 units.

    The quotes of one annotation decide together, since a quote that occurs several times may fit both ways.
    """
    as_units = [_from_utf16(span, text) for span in spans]
    if not all(_fits(span, span["start"], span["end"], text) for span in spans) and all(as_units):
        return [(*place, True) for place in as_units if place]
    places = []
    for span, units in zip(spans, as_units, strict=True):
        start, end = span["start"], span["end"]
        if not _fits(span, start, end, text) and units:  # some count so, some so: an old release, new suggestions
            places.append((*units, True))
            continue
        if not 0 <= start <= end <= len(text):
            raise BadAnswer("offsets beyond the text", f"{start} to {end}, but the text has {len(text)} characters")
        if start == end:
            raise BadAnswer("empty span", f"it begins and ends at {start}")
        if not _fits(span, start, end, text):
            problem = f"{start} to {end} is {shorten(text[start:end])}, and not {shorten(span['text'])}"
            raise BadAnswer("text at another place", problem)
        places.append((start, end, False))
    return places


def _fits(span: Mapping[str, Any], start: int, end: int, text: str) -> bool:
    inside = 0 <= start < end <= len(text)
    return inside and ("text" not in span or same_quote(span["text"], text[start:end]))


def _from_utf16(span: Mapping[str, Any], text: str) -> tuple[int, int] | None:
    """The span's offsets in characters, if they are UTF-16 units and lead to the quoted text."""
    start, end = from_utf16(text, span["start"]), from_utf16(text, span["end"])
    if "text" not in span or start is None or end is None or not _fits(span, start, end, text):
        return None
    return start, end


def join_overlaps(spans: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Joins overlapping spans of one label, with the flags of both; returns them and how many overlaps there were.

    Overlaps of several labels are counted too, and kept: RAGTruth's files have them.
    """
    kept: list[dict[str, Any]] = []
    overlaps = 0
    for span in sorted(spans, key=lambda span: (span["start"], span["end"], span["label"])):
        crossing = [other for other in kept if other["end"] > span["start"]]
        overlaps += bool(crossing)
        same = next((other for other in crossing if other["label"] == span["label"]), None)
        if same is None:
            kept.append(dict(span))
            continue
        same["end"] = max(same["end"], span["end"])
        if flags := [*same.get("flags", []), *span.get("flags", [])]:
            same["flags"] = list(dict.fromkeys(flags))
    return kept, overlaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One annotator's answers about one row; spans count characters of the row's original text."""

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
    """Yields the tasks of an export: place, Label Studio's number, the row's id, the data and the annotations."""
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
            values.setdefault("", []).append(result)  # no tag of the scheme, such as a relation between spans
        else:
            values.setdefault(str(result["from_name"]), []).append(result.get("value"))
    number = str(annotation.get("id", "?"))
    return _Raw(number, _name(annotation.get("completed_by")), bool(annotation.get("was_cancelled")), values)


_LABEL_STUDIO_FIELDS = ("id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement", KEY)


def _of_json_min(task: Mapping[str, Any]) -> list[_Raw]:
    """Reads an entry of JSON-MIN, one annotation; fields that are neither data nor Label Studio's are answers."""
    if task.get("annotation_id") is None:
        return []
    values = {
        name: value if isinstance(value, list) else [value]
        for name, value in task.items()
        if name not in _LABEL_STUDIO_FIELDS and value is not None
    }
    return [_Raw(str(task["annotation_id"]), _name(task.get("annotator")), False, values)]


def _name(given: Any) -> str:
    """Names an annotator, for whom Label Studio gives a number or an object with an address."""
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
    """Converts an annotation to a line of annotations.jsonl, from which agreement is measured."""
    head = {"id": annotation.row, "annotator": annotation.annotator, "group": row.example.group}
    system = {"system": row.system, "item": row.example.id} if row.system else {}
    return {**head, **system, "length": len(row.text), "answers": annotation.answers}
