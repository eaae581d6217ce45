"""Everyday answers: answers to questions about short documents, half of them wrong in one place, written for faithkit.

The files are part of the package, data_modules/everyday_answers/ (README.md there is the datasheet): JSON lines with
id, group, style, knowledge, question, response, label, error, spans and method. Each file is of another author, and no
author is in two splits: train is fitting, fitting_2, other_forms and values, validation is development,
test and test_2 are the files of these names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data_modules.reading import Patterns, ReadReport, Row, Source, last_turn, read_spans
from faithkit.records import FAITHFUL, HALLUCINATED, Example

FOLDER = Path(__file__).parents[1] / "everyday_answers"
TRAIN, VALIDATION = ("fitting", "fitting_2", "other_forms", "values"), "development"
FILES = {"train": [f"{name}.jsonl" for name in TRAIN], "validation": [f"{VALIDATION}.jsonl"]} | {
    name: [f"{name}.jsonl"] for name in ("test", "test_2")
}
LAYOUT = {"everyday answers": ("id", "group", "style", "knowledge", "response", "label", "error", "spans")}
ERRORS = ("number", "unit", "date", "entity", "role", "negation", "contradiction", "addition")


@dataclass(frozen=True, kw_only=True)
class Everyday(Source):
    """Answers with marked spans and the type of their error. The group is the context.

    Args:
        path: A folder with files of these names, or a file; by default those of the package.
    """

    name: ClassVar[str] = "everyday"
    official_files: ClassVar[Sequence[Patterns]] = (FILES,)
    address: ClassVar[str] = "data_modules/everyday_answers"
    path: str = str(FOLDER)

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(LAYOUT)
        response = row.text("response")
        label = row.choice("label", {name: name for name in (FAITHFUL, HALLUCINATED)})
        error = row.choice("error", {name: name for name in ERRORS}) if label == HALLUCINATED else ""
        found = read_spans(row, "spans", response, "label", {}, error, self.name) if error else ()
        yield Example(
            id=row.text("id"),
            source=self.name,
            split=split,
            group=row.text("group"),
            knowledge=row.text("knowledge"),
            history=last_turn(row, "question"),
            response=response,
            label=label,
            spans=tuple(span for span, _ in found),
            meta={"style": row.text("style")} | ({"error": error} if error else {}),
        )
