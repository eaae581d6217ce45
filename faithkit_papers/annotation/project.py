"""Writes a Label Studio project (configuration, tasks and the rows they are made from), and reads its exports.

    label_config.xml   paste it under Settings > Labeling Interface
    tasks.json         import it; suggested answers are in it as predictions
    rows.jsonl         needed to read an export

`row` in a task names its line of rows.jsonl. Label Studio's Text tag counts code points from 0, as Python does. A
browser shows "\\r\\n" and "\\r" as one line break each. Therefore tasks contain the text as a browser shows it, and
offsets are converted back.

Exports (JSON) are checked against the rows. A bad annotation stops the reading, or is left out with
`on_bad_annotation=skip`. Problems are counted by kind, and listed with their places. Spans get offsets in characters of
the original text, checked against their quotes.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from faithkit.errors import UserError, shorten
from faithkit.files.atomic import write_json, write_text
from faithkit.files.jsonl import read_numbered_jsonl, read_strict_json, write_jsonl
from faithkit.records import Example, Prediction
from faithkit_papers.annotation.schemes import SCHEMES, SPANS, Answers, BadAnswer, Scheme

STOP = "stop"  # or skip
HINT = "correct it in Label Studio and export again, or set pipeline.on_bad_annotation=skip to leave it out"


def shown_text(text: str) -> str:
    """Rewrites a text as a browser shows it: with "\\n" as the only line break, and without NUL."""
    return re.sub("\r\n?", "\n", text).replace("\0", "\ufffd")


PROJECT = "project"  # the folder in a run
CONFIG, TASKS, ROWS = "label_config.xml", "tasks.json", "rows.jsonl"
DECISION = "decision"  # the field of a person's answers in to_decide.jsonl
KEY = "row"  # not `id`, which Label Studio uses for its number
# Keeps spaces, and the direction of right-to-left texts.
STYLE = ".lsf-htx-richtext { white-space: pre-wrap; unicode-bidi: plaintext; }"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationRow:
    """One task's row.

    Args:
        id: Unique in the project: the example's, followed by the system if several are compared.
        system: Which wrote the response, if several are compared.
        texts: Shown in the task, by field.
        suggested: Answers shown at the start; offsets count the original text.
    """

    id: str
    example: Example
    texts: Mapping[str, str]
    system: str | None = None
    suggested: Answers

    @property
    def text(self) -> str:
        """Gives the text that is annotated, as in the dataset: the last of the texts."""
        return list(self.texts.values())[-1]


def make_row(
    scheme: Scheme, example: Example, prediction: Prediction | None, *, suggest: bool, system: str | None
) -> AnnotationRow:
    """Makes the row of one example, on request with the answers that its labels or a prediction suggest."""
    return AnnotationRow(
        id=example.id if system is None else f"{example.id}@{system}",
        example=example,
        texts=scheme.texts(example),
        system=system,
        suggested=scheme.suggest(example, prediction) if suggest else {},
    )


def write_project(folder: Path, scheme: Scheme, rows: Iterable[AnnotationRow], model: str) -> int:
    """Writes the three files, each atomically, and returns the number of tasks.

    Args:
        model: The source of the suggested answers; Label Studio shows it as the version of a model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = list(rows)
    *_, target = fields = list(kept[0].texts)  # of the last one the questions are asked
    lines = (
        {
            "scheme": scheme.name,
            "id": row.id,
            "system": row.system,
            "texts": dict(row.texts),
            "suggested": row.suggested,
            "example": row.example.to_dict(),
        }
        for row in kept
    )
    write_jsonl(folder / ROWS, lines)
    tasks = []
    for row in kept:
        data = {KEY: row.id, **{name: shown_text(text) for name, text in row.texts.items()}}
        results = []
        for question in scheme.questions:
            if (answer := row.suggested.get(question.name)) is None:
                continue
            if question.kind == SPANS:
                breaks = {name: [row.text.count("\r\n", 0, span[name]) for span in answer] for name in ("start", "end")}
                answer = [
                    span | {name: span[name] - counts[place] for name, counts in breaks.items()}
                    for place, span in enumerate(answer)
                ]
            results += question.results(answer, target, data[target])
        tasks.append({"data": data, "predictions": [{"model_version": model, "result": results}] if results else []})
    write_json(folder / TASKS, tasks)
    view = Element("View")
    SubElement(view, "Style").text = STYLE
    spans = [question for question in scheme.questions if question.kind == SPANS]
    for shown_field in fields:
        for marking in spans if shown_field == target else ():  # their labels are shown above the text
            marking.add_to(view, target)
        SubElement(view, "Header", {"value": shown_field.capitalize(), "size": "4"})
        # The type is named because Label Studio in its secure mode would take the text for an address.
        SubElement(
            view,
            "Text",
            {"name": shown_field, "value": f"${shown_field}", "valueType": "text", "saveTextResult": "yes"},
        )
    for question in scheme.questions:
        if question not in spans:
            question.add_to(view, target)
    indent(view)
    write_text(folder / CONFIG, f"{tostring(view, encoding='unicode')}\n")
    return len(kept)


def read_rows(project: Path) -> tuple[Scheme, dict[str, AnnotationRow]]:
    """Reads the rows of a project by their ids.

    Raises:
        UserError: rows.jsonl is missing, empty or changed.
    """
    path = project / ROWS
    rows: dict[str, AnnotationRow] = {}
    schemes = set()
    hint = "write the project again: pipeline=annotate"
    for line, values in read_numbered_jsonl(path):
        schemes.add(values.get("scheme"))
        try:
            names = ("id", "texts", "system", "suggested")
            given = {name: values[name] for name in names}
            row = AnnotationRow(**given, example=Example.from_dict(values["example"]))
        except (KeyError, TypeError, ValueError) as error:
            problem = f"no row of a project: {shorten(str(error))}"
            raise UserError(problem, place=f"{path}, line {line}", hint=hint) from error
        rows[row.id] = row
    if not rows:
        raise UserError("the project has no rows", place=str(path), hint=hint)
    if len(schemes) != 1 or (name := schemes.pop()) not in SCHEMES:
        raise UserError("the rows are of no known scheme, or of several", place=str(path), hint=hint)
    return SCHEMES[str(name)], rows


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


def check_spans(spans: Sequence[Mapping[str, Any]], text: str) -> None:
    """Checks that spans lie in the text, and that the text has there what Label Studio quotes.

    Raises:
        BadAnswer: One does not.
    """
    for span in spans:
        start, end = span["start"], span["end"]
        if not 0 <= start <= end <= len(text):
            raise BadAnswer("offsets beyond the text", f"{start} to {end}, but the text has {len(text)} characters")
        if start == end:
            raise BadAnswer("empty span", f"it begins and ends at {start}")
        # Label Studio's quote may have "\\n" as two characters, and fewer spaces.
        quotes = {
            "".join(one.replace("\\n", "\n").split()) for one in (span.get("text", text[start:end]), text[start:end])
        }
        if len(quotes) > 1:
            problem = f"{start} to {end} is {shorten(text[start:end])}, and not {shorten(span['text'])}"
            raise BadAnswer("text at another place", problem)


def join_overlaps(spans: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Joins overlapping spans of one label, with the flags of both; returns them and how many overlaps there were.

    Overlaps of several labels are counted too, and kept: RAGTruth's files have them. Quoted texts are left out.
    """
    kept: list[dict[str, Any]] = []
    overlaps = 0
    for span in sorted(spans, key=lambda span: (span["start"], span["end"], span["label"])):
        crossing = [other for other in kept if other["end"] > span["start"]]
        overlaps += bool(crossing)
        same = next((other for other in crossing if other["label"] == span["label"]), None)
        if same is None:
            kept.append({name: value for name, value in span.items() if name != "text"})
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
        UserError: The file is not an export, or an annotation is bad under `on_bad_annotation=stop`.
    """
    found: dict[tuple[str, str], Annotation] = {}
    seen: dict[str, set[Any]] = {}
    hint = "export JSON from Label Studio (not JSON-MIN), and name that file"
    tasks = read_strict_json(path, hint=hint)
    if not isinstance(tasks, list) or not all(isinstance(task, Mapping) for task in tasks):
        raise UserError("not an export of Label Studio: it must be a list of tasks", place=str(path), hint=hint)
    if not tasks:
        raise UserError("the export has no tasks", place=str(path), hint=hint)
    for index, task in enumerate(tasks):
        place, data = f"{path}, task {task.get('id', index)}", task.get("data")
        annotations = task.get("annotations", [])
        if not isinstance(data, Mapping):
            raise UserError("no task of this project: it has no data", place=place, hint=hint)
        if not isinstance(annotations, list) or not all(isinstance(one, Mapping) for one in annotations):
            raise UserError("annotations must be a list of objects", place=place, hint=hint)
        row_id = data.get(KEY)
        row = rows.get(row_id) if isinstance(row_id, str) else None
        if row is None:
            report.reject("unknown task", place, f"{KEY} is {shorten(row_id)}, which the project does not have")
            continue
        if changed := [name for name, text in row.texts.items() if data.get(name) != shown_text(text)]:
            report.reject("edited text", place, f"{' and '.join(changed)} of row {row.id} changed")
            continue
        others = seen.setdefault(row.id, set())
        if others and task.get("id") not in others:
            report.count("task twice", place, f"row {row.id} is another task too")
        others.add(task.get("id"))
        for annotation in annotations:
            where, given = f"{place}, annotation {annotation.get('id', '?')}", annotation.get("completed_by")
            if isinstance(given, Mapping):  # a number, or an object with an address
                given = given.get("email") or given.get("username") or given.get("id")
            annotator = "unknown" if given is None else str(given)
            if annotation.get("was_cancelled"):
                report.count("cancelled annotation", where, f"of row {row.id}, by {annotator}")
                continue
            try:
                answers = _answers(scheme, row, annotation, where, report)
            except BadAnswer as error:
                report.reject(error.kind, where, str(error))
                continue
            if (row.id, annotator) in found:
                report.count("annotator twice", where, f"{annotator} annotated row {row.id} before")
            found[row.id, annotator] = Annotation(row=row.id, annotator=annotator, answers=answers)
    annotated = {row for row, _ in found}
    for row_id in rows:
        if row_id not in seen:
            report.count("missing task", str(path), f"row {row_id}")
        elif row_id not in annotated:
            report.count("task without annotation", str(path), f"row {row_id}")
    order = {row: place for place, row in enumerate(rows)}
    return [found[key] for key in sorted(found, key=lambda key: (order[key[0]], key[1]))]


def _answers(
    scheme: Scheme, row: AnnotationRow, annotation: Mapping[str, Any], place: str, report: ExportReport
) -> Answers:
    """Reads the results of an annotation by the names of their tags."""
    values: dict[str, list[Mapping[str, Any]]] = {}
    results = annotation.get("result") or []
    for result in results if isinstance(results, list) else [results]:
        if not isinstance(result, Mapping) or "from_name" not in result:  # such as a relation between spans
            raise BadAnswer("unknown question", f"a result without a tag: {shorten(result)}")
        if not isinstance(value := result.get("value"), Mapping):
            raise BadAnswer("unreadable answer", f"value must be an object, got {shorten(value)}")
        values.setdefault(str(result["from_name"]), []).append(value)
    answers: Answers = {}
    known = set(row.texts)
    for question in scheme.questions:
        given = values.get(question.name, [])
        known.add(question.name)
        if question.kind == SPANS:
            known.add(question.flags_name)
            spans = question.read([*given, *values.get(question.flags_name, ())])
            check_spans(spans, shown_text(row.text))
            for span, name in product(spans, ("start", "end")):
                for line_break in re.finditer("\r\n", row.text):  # of which the browser shows one character
                    span[name] += line_break.start() < span[name]
            answers[question.name], overlaps = join_overlaps(spans)
            for _ in range(overlaps):
                report.count("overlapping spans", place, f"in row {row.id}")
        elif given:
            answers[question.name] = question.read(given)
        elif question.is_required:
            report.count("unanswered question", place, f"{question.name} of row {row.id}")
    if unknown := sorted(values.keys() - known):
        raise BadAnswer("unknown question", f"the scheme has no tag {shorten(unknown[0])}")
    return answers


def read_answers(path: Path, scheme: Scheme, rows: Mapping[str, AnnotationRow], key: str) -> dict[str, Answers]:
    """Reads a person's answers by row: JSON lines of {"id", "answers"}, or {"id", "decision"} of a `to_decide` file.

    Args:
        key: The field of the answers. Lines without a decision are still open.

    Raises:
        UserError: A row that the project does not have, a row twice, or an answer that its question does not allow.
    """
    found: dict[str, Answers] = {}
    for line, values in read_numbered_jsonl(path):
        place, row = f"{path}, line {line}", values.get("id")
        if not isinstance(row, str) or row not in rows:
            problem = f"id is {shorten(row)}, which the project does not have"
            raise UserError(problem, place=place, hint="see its rows.jsonl")
        if key == DECISION and values.get(key) is None:
            continue
        if row in found:
            raise UserError(f"row {shorten(row)} has two lines", place=place, hint="keep one of them")
        hint = "see the answers of the annotators in the same line"
        if not isinstance(given := values.get(key), Mapping):
            raise UserError(f"answers must be an object by question, got {shorten(given)}", place=place, hint=hint)
        found[row] = {}
        for name, answer in given.items():
            question = scheme.by_name.get(name)
            if question is None:
                known = ", ".join(scheme.by_name)
                raise UserError(f"no question {shorten(name)}", place=place, hint=f"the scheme has {known}")
            try:
                read = question.read([result["value"] for result in question.results(answer, "", rows[row].text)])
                if question.kind == SPANS:
                    check_spans(read, rows[row].text)
                    read, _ = join_overlaps(read)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise UserError(f"{name}: {error}", place=place, hint=hint) from error
            found[row][name] = read
    return found


def to_line(annotation: Annotation, row: AnnotationRow) -> dict[str, Any]:
    """Converts an annotation to a line of annotations.jsonl, from which agreement is measured."""
    head = {"id": annotation.row, "annotator": annotation.annotator, "group": row.example.group}
    system = {"system": row.system, "item": row.example.id} if row.system else {}
    return {**head, **system, "length": len(row.text), "answers": annotation.answers}
