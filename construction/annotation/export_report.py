"""Kinds of faults of an export, each with what becomes of it; counts them, and lists them with their places."""

from collections import Counter
from dataclasses import dataclass, field

from faithkit.errors import UserError

STOP, SKIP = "stop", "skip"
# What is wrong with an annotation or a task: it stops the reading, or is left out.
BAD = {
    "unknown task": "a task whose row the project does not have",
    "edited text": "a task whose text is no longer the row's",
    "unknown question": "a result of a tag that the scheme does not have",
    "unknown label": "a label that the scheme does not have",
    "several labels": "more labels than the question allows",
    "number out of range": "a rating or round outside its scale",
    "unreadable answer": "a result that is not in Label Studio's form",
    "offsets beyond the text": "a span that ends behind its text, or begins before it",
    "empty span": "a span without a character",
    "text at another place": "a span whose quoted text does not stand at its offsets",
}
# What is left out or mended without a stop: it happens in every project.
COUNTED = {
    "missing task": "a row that the export does not have",
    "task without annotation": "nobody has annotated it, or all were cancelled",
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
