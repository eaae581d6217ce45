"""Users' spans: JSON lines of a context, an answer and the spans of its errors.

Each line has context, answer and spans, each of which has start, end and, if wanted, label and text (which is then
checked); it may have question, id, group (rows of one group stay together), task and model. Offsets count characters of
the answer. Labels are RAGTruth's types, as its files spell them or as predictions do (`evident_conflict`); a span
without one is a `hallucination`. An empty list of spans says that nothing is wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.datasets.ragtruth import LABELS as RAGTRUTH_LABELS
from data_modules.reading.dataset import Source
from data_modules.reading.fields import identifier, last_turn, read_spans, text_group
from data_modules.reading.files import File, find_files
from data_modules.reading.rows import ReadReport, Row
from faithkit.records import FAITHFUL, HALLUCINATED, Example
from faithkit.span_types import SPAN_LABELS, UNTYPED

BY_SPLIT = {
    "train": ["train.jsonl"],
    "validation": ["validation.jsonl", "valid.jsonl", "dev.jsonl"],
    "test": ["test.jsonl"],
}
LAYOUT = {"spans": ("context", "answer", "spans")}
LABELS = {label: label for label in SPAN_LABELS} | RAGTRUTH_LABELS
META = ("task", "model")


@dataclass(frozen=True, kw_only=True)
class SpanRows(Source):
    """Answers with marked spans in a plain layout.

    Args:
        path: A file, or a folder with train.jsonl, validation.jsonl and test.jsonl, whichever there are; the files of
            other names make one split, `all`.
    """

    name: ClassVar[str] = "spans"
    embedded_layout: ClassVar[str | None] = "spans"

    def files(self) -> Mapping[str, Sequence[File]]:
        return find_files(self.path, BY_SPLIT, {"all": ["*.jsonl"]})

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(LAYOUT)
        context, answer = row.text("context"), row.text("answer")
        marked = sorted(
            (span for span, _ in read_spans(row, "spans", answer, "label", LABELS, UNTYPED)),
            key=lambda span: (span.start, span.end),
        )
        yield Example(
            id=row.default_id if row.values.get("id") is None else identifier(row, "id"),
            source=self.name,
            split=split,
            group=text_group(context) if row.values.get("group") is None else identifier(row, "group"),
            knowledge=context,
            history=last_turn(row, "question"),
            response=answer,
            label=HALLUCINATED if marked else FAITHFUL,
            spans=tuple(marked),
            meta={name: row.text(name) for name in META if row.values.get(name) is not None},
        )
