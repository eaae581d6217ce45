"""Lists the rows that no rule settled for people to decide, and reads their answers back, checked."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from construction.annotation.controls import Answer, Answers, Question
from construction.annotation.export import Annotation
from construction.annotation.exported_spans import join_overlaps
from construction.annotation.project import AnnotationRow
from construction.annotation.schemes import Scheme
from construction.annotation.settle import Settled
from construction.annotation.span_control import Spans
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import read_numbered_jsonl


def to_decide(
    settled: Sequence[Settled], rows: Mapping[str, AnnotationRow], annotations: Sequence[Annotation]
) -> Iterator[dict[str, Any]]:
    """Lists the open rows as lines for a person to fill: `decision` takes the answers, by question."""
    for one in settled:
        if one.open:
            given = {other.annotator: other.answers for other in annotations if other.row == one.row}
            shown = {"text": rows[one.row].text, "annotators": given, "settled": one.answers}
            yield {"id": one.row, "decide": list(one.open), "decision": None, **shown}


def read_decisions(path: Path, scheme: Scheme, rows: Mapping[str, AnnotationRow]) -> dict[str, Answers]:
    """Reads the lines of a filled `to_decide` file, by row; lines whose decision is null are still open.

    Raises:
        UserError: A row that the project does not have, a row twice, or an answer that its question does not allow.
    """
    found: dict[str, Answers] = {}
    for line, values in read_numbered_jsonl(path):
        row = _known_row(values, rows, f"{path}, line {line}")
        if values.get("decision") is None:
            continue
        if row in found:
            raise UserError(f"row {shorten(row)} is decided twice", place=f"{path}, line {line}", hint="keep one line")
        found[row] = check_answers(scheme, rows[row], values["decision"], f"{path}, line {line}")
    return found


def read_expert(path: Path, scheme: Scheme, rows: Mapping[str, AnnotationRow]) -> dict[str, Answers]:
    """Reads an expert's answers: JSON lines of {"id", "answers"}, such as annotations.jsonl of another run."""
    found: dict[str, Answers] = {}
    for line, values in read_numbered_jsonl(path):
        row = _known_row(values, rows, f"{path}, line {line}")
        if row in found:
            raise UserError(
                f"row {shorten(row)} stands there twice", place=f"{path}, line {line}", hint="keep one expert"
            )
        found[row] = check_answers(scheme, rows[row], values.get("answers"), f"{path}, line {line}")
    return found


def _known_row(values: Mapping[str, Any], rows: Mapping[str, AnnotationRow], place: str) -> str:
    row = values.get("id")
    if not isinstance(row, str) or row not in rows:
        raise UserError(
            f"id is {shorten(row)}, which the project does not have", place=place, hint="see its rows.jsonl"
        )
    return row


def check_answers(scheme: Scheme, row: AnnotationRow, answers: Any, place: str) -> Answers:
    """Checks answers that a person wrote; spans count characters of the row's text."""
    hint = "see the answers of the annotators in the same line"
    if not isinstance(answers, Mapping):
        raise UserError(f"answers must be an object by question, got {shorten(answers)}", place=place, hint=hint)
    checked: Answers = {}
    for name, answer in answers.items():
        question = scheme.question(name)
        if question is None:
            known = ", ".join(question.name for question in scheme.questions)
            raise UserError(f"no question {shorten(name)}", place=place, hint=f"the scheme has {known}")
        try:
            checked[name] = _checked(question, answer, row.text)
        except (ValueError, TypeError, IndexError) as error:
            raise UserError(f"{name}: {error}", place=place, hint=hint) from error
    return checked


def _checked(question: Question, answer: Any, text: str) -> Answer:
    if not isinstance(question, Spans):
        return question.read(answer if isinstance(answer, list) and answer else [answer])
    as_results = [{**span, "labels": [span.get("label")]} for span in answer]
    flags = [
        {"start": span["start"], "end": span["end"], "choices": span["flags"]} for span in answer if span.get("flags")
    ]
    spans = question.read([*as_results, *flags])
    for span in spans:
        if not 0 <= span["start"] < span["end"] <= len(text):
            raise ValueError(f"{span['start']} to {span['end']} is no stretch of a text of {len(text)} characters")
    return join_overlaps(
        [{name: span[name] for name in ("start", "end", "label", "flags") if name in span} for span in spans]
    )[0]
