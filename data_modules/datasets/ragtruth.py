"""RAGTruth (Niu et al. 2024): responses of six models to three tasks, with the spans that their sources do not support.

Official files: https://github.com/ParticleMedia/RAGTruth, folder `dataset`: `response.jsonl` with the answers, their
marked spans and their splits, `source_info.jsonl` with the sources that they should be faithful to. Offsets count
characters, as Python does; a NUL in an answer is a character like any other.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from data_modules.reading import (
    ANY,
    SEEKER,
    SPLITS,
    BadRow,
    File,
    Names,
    ReadReport,
    Records,
    Row,
    Source,
    chosen,
    find_files,
    flag,
    identifier,
    locate_span,
    read_rows,
    read_spans,
    text_group,
)
from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, RAGTRUTH, UNTYPED, Example, Span, Turn

SOURCES = "source_info.jsonl"
SOURCE_FIELDS = ("source_id", "task_type", "source_info")
TASKS = {"qa": "QA", "summary": "Summary", "data2txt": "Data2txt"}
CORPORA = {"QA": "MARCO", "Summary": "CNN/DM", "Data2txt": "Yelp"}  # from which the sources of each task come


class SourceText(NamedTuple):
    """One source as text, with the task and the question that its responses answer."""

    task: str
    corpus: str
    knowledge: str
    question: str


def rows_with_ids(file: Path, name: str, fields: Sequence[str], report: ReadReport) -> Iterator[tuple[Row, str]]:
    """Yields the rows that have these fields, with their ids, each id once."""
    seen: dict[str, str] = {}
    for row in read_rows(file, report):
        with report.rejecting(row):
            row.layout({file.name: fields})
            row_id = identifier(row, name)
            if row_id in seen:
                raise BadRow(f"field {name!r} is {row_id!r}, which was already given by {seen[row_id]}")
            seen[row_id] = f"line {row.line}"
            yield row, row_id


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


ADDRESS = "https://github.com/ParticleMedia/RAGTruth, folder dataset"
RESPONSES = "response.jsonl"
FIELDS = ("id", "source_id", "model", "labels", "quality", "response")
# As the files spell them, and as the paper does.
LABELS = {
    f"{severity} {words}": f"{severity}_{kind}"
    for severity in ("evident", "subtle")
    for words, kind in (
        ("conflict", "conflict"),
        ("baseless info", "baseless"),
        ("introduction of baseless information", "baseless"),
        ("introduction of baseless info", "baseless"),
    )
}
FLAGS = ("implicit_true", "due_to_null")
CHOICES: Mapping[str, Sequence[str | bool]] = {
    "official_split": (True, False),
    "quality": ("good", "all"),
    "implicit_true": ("keep", "drop"),
    "due_to_null": ("keep", "drop"),
    "severity": ("all", "evident", "subtle"),
}


@dataclass(frozen=True, kw_only=True)
class RagTruth(Source):
    """Answers with marked spans. The group is the source: the answers of all models to it stay together.

    A span that a switch drops no longer counts: an answer without others is faithful.

    Args:
        path: The folder with both files, or the file of the responses, next to that of the sources.
        official_split: False reads all responses as one split, `all`, to be divided by source.
        quality: `good` leaves out refusals and truncated answers, as the released code does; or `all`.
        implicit_true: `drop` leaves out spans that are right, though the source does not say so; or `keep`.
        due_to_null: `drop` leaves out spans that take a null of the source for a no; or `keep`.
        severity: `evident` or `subtle` spans alone, or `all`.
        tasks: QA, Summary, Data2txt: one, a list, or `all`.
        models: Models to read answers of: one, a list, or `all`.
    """

    name: ClassVar[str] = "ragtruth"
    embedded_layout: ClassVar[str | None] = "ragtruth"
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = CHOICES
    option_names: ClassVar[Mapping[str, Sequence[str]]] = {"tasks": tuple(TASKS.values())}
    options_for_all_rows: ClassVar[Mapping[str, Any]] = {"quality": ANY}
    official_split: bool = True
    quality: str = "good"
    implicit_true: str = "keep"
    due_to_null: str = "keep"
    severity: str = ANY
    tasks: Names = ANY
    models: Names = ANY

    def __post_init__(self) -> None:
        super().__post_init__()
        if not chosen(self.models, "models"):
            raise UserError(f"models is {self.models!r}", hint=f"use {ANY}, a name or a list of names")

    def files(self) -> Mapping[str, Sequence[File]]:
        """Both files for every split, since its records depend on both."""
        file = find_files(self.path, {ANY: [RESPONSES]}, address=ADDRESS)[ANY][0]
        both = [each for each in (file, file.with_name(SOURCES)) if each.is_file()]
        have = _splits_of(file, file.stat().st_mtime_ns) if self.official_split else ()
        return dict.fromkeys(have or (ANY,), both)

    def layout(self) -> Mapping[str, Any]:
        return {**super().layout(), "models": sorted(chosen(self.models))}

    def read_split(self, split: str, report: ReadReport) -> Records:
        """Yields the records of a split, in the order of the responses."""
        responses = self.files()[split][0]
        assert isinstance(responses, Path)
        rows = list(rows_with_ids(responses, "id", FIELDS, report))
        file = responses.with_name(SOURCES)
        if not file.is_file():
            raise UserError(
                f"no {SOURCES} next to the responses", place=str(file), hint=f"put both official files there: {ADDRESS}"
            )
        sources: dict[str, SourceText] = {}
        for row, source_id in rows_with_ids(file, "source_id", SOURCE_FIELDS, report):
            with report.rejecting(row):
                sources[source_id] = _source(row)
        have = {str(row.values["model"]) for row, _ in rows}
        if rows and (unknown := chosen(self.models) - chosen(tuple(have)) - {ANY}):
            problem = f"models is {self.models!r}: the file has no answer of {min(unknown)!r}"
            raise UserError(problem, place=str(responses), hint=f"choose from: {', '.join(sorted(have))}")
        if unused := len(sources.keys() - {str(row.values["source_id"]) for row, _ in rows}):
            report.count("sources without a response", unused)
        for row, response_id in rows:
            with report.rejecting(row):
                if self._split_of(row) == split and (example := self._example(row, response_id, sources, report)):
                    yield example, None  # `rows_with_ids` saw to it that ids are unique

    def _split_of(self, row: Row) -> str:
        return row.choice("split", {split: split for split in SPLITS}) if self.official_split else ANY

    def _example(
        self, row: Row, response_id: str, sources: Mapping[str, SourceText], report: ReadReport
    ) -> Example | None:
        source_id = identifier(row, "source_id")
        if source_id not in sources:
            problem = f"field 'source_id' is {shorten(source_id)}: {SOURCES} has no such source, or a bad one"
            raise BadRow(problem, hint="check that the two files belong together")
        source, model, quality = sources[source_id], row.text("model"), row.text("quality")
        if not (self._reads("tasks", source.task, report) and self._reads("models", model, report)):
            return None
        if self.quality != ANY and quality != self.quality:
            report.count(f"dropped: quality {quality}")
            return None
        answer = row.text("response")
        marked = read_spans(row, "labels", answer, "label_type", LABELS, label_set=self.name)
        spans = []
        for span, item in marked:
            severity = span.label.split("_")[0]
            reasons = [name for name in FLAGS if flag(item, name) and getattr(self, name) == "drop"]
            reasons += [severity] if self.severity not in (ANY, severity) else []
            if reasons:
                report.count(f"dropped: span, {reasons[0]}")
            else:
                spans.append((span, item))
        if marked and not spans:
            report.count("faithful, since none of its spans counts")
        flagged = {name: [i for i, (_, item) in enumerate(spans) if flag(item, name)] for name in FLAGS}
        meta: dict[str, Any] = {"task": source.task, "model": model, "quality": quality, "corpus": source.corpus}
        meta["temperature"] = row.values.get("temperature")
        return Example(
            id=response_id,
            source=self.name,
            split=self._split_of(row),
            group=source_id,
            knowledge=source.knowledge,
            history=(Turn(speaker=SEEKER, text=source.question),) if source.question.strip() else (),
            response=answer,
            label=HALLUCINATED if spans else FAITHFUL,
            spans=tuple(span for span, _ in spans),
            tags=tuple(dict.fromkeys(item.values["label_type"] for _, item in spans)),
            # For each flag, which of the spans have it.
            meta=meta | {name: places for name, places in flagged.items() if places},
        )


@lru_cache(maxsize=8)
def _splits_of(file: Path, modified: int) -> tuple[str, ...]:
    """Returns the splits that the responses name. A quote inside a JSON text is escaped, so this meets fields alone."""
    named = {name.lower() for name in re.findall(rb'(?<!\\)"split"\s*:\s*"\s*(\w+)\s*"', file.read_bytes())}
    return tuple(split for split in SPLITS if split.encode() in named)


MESSAGES, SPANS = "messages.csv", "hallucination_spans.csv"
MESSAGE_FIELDS = ("stable_id", "meta", "role", "position", "text", "message_thread_stable_id")
ROLES = {"user": "user", "assistant": "assistant"}


@dataclass(frozen=True, kw_only=True)
class RagTruthPlusPlus(Source):
    """RAGTruth++ (Blue Guardrails 2025): 408 of RAGTruth's answers, annotated again with ten times as many spans.

    Official files, as the card has them: `messages.csv` (stable_id, meta, role, position, text,
    message_thread_stable_id) and `hallucination_spans.csv` (start_pos, end_pos, span_text, label, reasoning, stable_id,
    message_stable_id). A thread is a prompt of the user and the assistant's answer; what the prompt does not support is
    marked, so the whole prompt is the knowledge, and the group. `meta` is JSON with `model` and `original_id`,
    RAGTruth's id, by the code of two users. Not verified: the values of `label` (RAGTruth's types are recognised,
    others are kept as tags), and whether offsets count Unicode characters (the texts decide).

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
