"""RAGTruth++ (Blue Guardrails 2025): 408 of RAGTruth's answers, annotated again with ten times as many spans.

Official files: https://huggingface.co/datasets/blue-guardrails/ragtruth-plus-plus, `messages.csv` (stable_id, meta,
role, position, text, message_thread_stable_id) and `hallucination_spans.csv` (start_pos, end_pos, span_text, label,
reasoning, stable_id, message_stable_id), as its card has them. A thread is a prompt of the user and the assistant's
answer; what the prompt does not support is marked, so the whole prompt is the knowledge. `meta` is JSON with `model`
and `original_id`, RAGTruth's id, by the code of two users. Not verified: the values of `label` (RAGTruth's types are
recognised, others are kept as tags), and whether offsets count Unicode characters (the texts decide).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from data_modules.datasets.ragtruth import LABELS, rows_with_ids
from data_modules.reading.dataset import Records, Source
from data_modules.reading.fields import locate_span, text_group
from data_modules.reading.files import File, find_files
from data_modules.reading.rows import BadRow, ReadReport, Row, read_rows
from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, RAGTRUTH, UNTYPED, Example, Span

MESSAGES, SPANS = "messages.csv", "hallucination_spans.csv"
MESSAGE_FIELDS = ("stable_id", "meta", "role", "position", "text", "message_thread_stable_id")
ROLES = {"user": "user", "assistant": "assistant"}


@dataclass(frozen=True, kw_only=True)
class RagTruthPlusPlus(Source):
    """Answers with marked spans. The group is the prompt.

    Args:
        path: The folder with both files, or the file of the messages, next to that of the spans.
    """

    name: ClassVar[str] = "ragtruth_plus_plus"
    embedded_layout: ClassVar[str | None] = "ragtruth_plus_plus"
    address: ClassVar[str] = "https://huggingface.co/datasets/blue-guardrails/ragtruth-plus-plus"

    def files(self) -> Mapping[str, Sequence[File]]:
        """Both files, since the records depend on both."""
        file = find_files(self.path, {"test": [f"**/{MESSAGES}"]}, address=self.address)
        messages = next(iter(file.values()))[0]
        return {"test": [each for each in (messages, messages.with_name(SPANS)) if each.is_file()]}

    def read_split(self, split: str, report: ReadReport) -> Records:
        messages, *spans = self.files()[split]
        assert isinstance(messages, Path)
        threads: dict[str, list[tuple[int, str, Row]]] = {}
        rows = list(rows_with_ids(messages, "stable_id", MESSAGE_FIELDS, report))
        for row, message_id in rows:
            with report.rejecting(row):
                place = _number(row, "position")
                row.choice("role", ROLES)
                threads.setdefault(row.text("message_thread_stable_id"), []).append((place, message_id, row))
        if not spans:
            hint = f"put both official files there: {self.address}"
            raise UserError(f"no {SPANS} next to the messages", place=str(messages), hint=hint)
        assert isinstance(spans[0], Path)
        known = {message_id for _, message_id in rows}
        marks: dict[str, list[Row]] = {}  # the rows of spans by the id of their message
        for row in read_rows(spans[0], report):
            with report.rejecting(row):
                row.layout({SPANS: ("start_pos", "end_pos", "span_text", "label", "message_stable_id")})
                message_id = row.text("message_stable_id")
                if message_id not in known:
                    raise BadRow(f"field 'message_stable_id' is {shorten(message_id)}: {MESSAGES} has no such message")
                marks.setdefault(message_id, []).append(row)
        for thread in threads.values():
            before: list[str] = []
            for _, message_id, row in sorted(thread, key=lambda message: message[0]):
                with report.rejecting(row):
                    if row.choice("role", ROLES) == "user":
                        before.append(row.text("text"))
                    elif (example := self._example(row, message_id, before, marks, split, report)) is not None:
                        yield example, None  # `rows_with_ids` saw to it that ids are unique

    def _example(
        self,
        row: Row,
        message_id: str,
        before: Sequence[str],
        marks: Mapping[str, Sequence[Row]],
        split: str,
        report: ReadReport,
    ) -> Example | None:
        if not before:
            raise BadRow("an answer without a prompt: its thread has no message of the user before it")
        answer, prompt = row.text("text"), "\n\n".join(before)
        spans: list[Span] = []
        for mark in marks.get(message_id, ()):
            with report.rejecting(mark):
                bounds = _number(mark, "start_pos"), _number(mark, "end_pos")
                label = LABELS.get(mark.text("label", empty_ok=True).strip().lower(), UNTYPED)
                spans.append(
                    locate_span(mark.text("span_text", empty_ok=True), *bounds, answer, report, label, RAGTRUTH)
                )
                continue
            report.count("dropped: an answer with a bad span")
            return None
        tags = [mark.text("label", empty_ok=True) for mark in marks.get(message_id, ())]
        return Example(
            id=message_id,
            source=self.name,
            split=split,
            group=text_group(prompt),
            knowledge=prompt,
            response=answer,
            label=HALLUCINATED if spans else FAITHFUL,
            spans=tuple(sorted(spans, key=lambda span: (span.start, span.end))),
            tags=tuple(dict.fromkeys(filter(None, tags))),
            meta=_meta(row, report),
        )


def _number(row: Row, name: str) -> int:
    text = str(row.values.get(name)).strip()
    if not (text.isascii() and text.isdigit()):
        raise BadRow(f"field {name!r} must be a whole number from 0, got {shorten(row.values.get(name))}")
    return int(text)


def _meta(row: Row, report: ReadReport) -> dict[str, Any]:
    try:
        values = json.loads(row.text("meta", empty_ok=True) or "{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        report.count("meta that is no JSON object, left out")
        return {}
    return {name: str(values[name]) for name in ("model", "original_id") if values.get(name) is not None}
