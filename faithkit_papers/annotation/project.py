"""Writes a Label Studio project: the labelling configuration, the tasks, and the rows from which they are made.

    label_config.xml   paste it under Settings > Labeling Interface
    tasks.json         import it; suggested answers are in it as predictions
    rows.jsonl         needed to read an export

`row` in a task names its line of rows.jsonl. Label Studio's Text tag counts code points from 0, as Python does. A
browser shows "\\r\\n" and "\\r" as one line break each. Therefore tasks contain the text as a browser shows it, and
offsets are converted back.

>>> text = "one\\r\\ntwo"
>>> shown_text(text), to_shown(text, 5), to_original(text, 4)
('one\\ntwo', 4, 5)
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from faithkit.errors import UserError, shorten
from faithkit.files.atomic import write_json, write_text
from faithkit.files.jsonl import read_numbered_jsonl, write_jsonl
from faithkit.records import Example, Prediction
from faithkit_papers.annotation.annotation_questions import SPANS, Answers
from faithkit_papers.annotation.schemes import SCHEMES, Scheme

_NUL, _REPLACEMENT = "\0", "\ufffd"  # browsers replace NUL


def shown_text(text: str) -> str:
    """Rewrites a text as a browser shows it: with "\\n" as the only line break, and without NUL."""
    return re.sub("\r\n?", "\n", text).replace(_NUL, _REPLACEMENT)


def to_shown(text: str, offset: int) -> int:
    """Converts an offset of the text to one of the shown text; inside "\\r\\n" it becomes that of the line break."""
    return offset - text.count("\r\n", 0, offset)


def to_original(text: str, offset: int) -> int:
    """Reverses `to_shown`: an offset behind a line break stays behind both of its characters."""
    removed = 0
    for match in re.finditer("\r\n", text):
        if match.start() - removed >= offset:
            break
        removed += 1
    return offset + removed


def same_quote(quoted: str, text: str) -> bool:
    """Compares a span's text with Label Studio's quote, which may have "\\\\n" as two characters and fewer spaces."""
    first, second = ("".join(one.replace("\\n", "\n").split()) for one in (quoted, text))
    return first == second


CONFIG, TASKS, ROWS = "label_config.xml", "tasks.json", "rows.jsonl"
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
                places = [{name: to_shown(row.text, span[name]) for name in ("start", "end")} for span in answer]
                answer = [span | place for span, place in zip(answer, places, strict=True)]
            results += question.results(answer, target, data[target])
        tasks.append({"data": data, "predictions": [{"model_version": model, "result": results}] if results else []})
    write_json(folder / TASKS, tasks)
    view = Element("View")
    SubElement(view, "Style").text = STYLE
    spans = [question for question in scheme.questions if question.kind == SPANS]
    for field in fields:
        for marking in spans if field == target else ():  # their labels are shown above the text
            marking.add_to(view, target)
        SubElement(view, "Header", {"value": field.capitalize(), "size": "4"})
        # The type is named because Label Studio in its secure mode would take the text for an address.
        SubElement(view, "Text", {"name": field, "value": f"${field}", "valueType": "text", "saveTextResult": "yes"})
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
