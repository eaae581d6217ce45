"""LettuceDetect's data of 2026: answers on code, tool output, structured documents and prose, with typed spans.

Official files: https://huggingface.co/datasets/KRLabsOrg/lettucedetect-code-hallucination and
https://huggingface.co/datasets/KRLabsOrg/lettucedetect-prose-hallucination, Parquet or JSON lines by split. A row has
prompt, context, question, answer, labels (spans with start, end, label, category, subcategory), split, task_type,
dataset, language, context_modality and metadata, a JSON object or its text. Rows of RAGTruth have no context apart from
the prompt. No repository is in two splits: code agents and tool output name it by their `instance_id`
(`django__django-11099`), README files by their `doc_id`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from data_modules.reading import (
    ANY,
    BadRow,
    Names,
    Patterns,
    ReadReport,
    Row,
    Source,
    last_turn,
    read_spans,
    text_group,
)
from faithkit.errors import shorten
from faithkit.records import FAITHFUL, HALLUCINATED, RELATIONS, Example, span_type

SUBCATEGORIES = (
    *("numerical", "temporal", "entity", "relational", "value", "claim", "elaboration", "subjective", "behavior"),
    *("section", "identifier", "attribute"),
)
CODE_AGENT, README, RAGTRUTH = "code-agent", "readme", "ragtruth"
CODE_SETS = (CODE_AGENT, "tool-output", README, "wikipedia", "acl")
PROSE_SETS = ("psiloqa", RAGTRUTH)
LABEL_SET = "lettucedetect"  # of faithkit.records
PREFIX = "lettucedetect-"  # of some names in the files
LAYOUT = {"LettuceDetect": ("prompt", "answer", "labels", "task_type", "dataset", "language", "metadata")}
INSTANCE = re.compile(r"(.+)-[^-]+")  # OWNER__REPOSITORY-NUMBER


@dataclass(frozen=True, kw_only=True)
class LettuceDetectCode(Source):
    """Answers with spans of `category/subcategory`; `tags` has the sources' labels, such as `fabricated_api`.

    The group is the repository, else the document or paper, else the text of the context.

    Args:
        path: A file, or the folder of the files.
        sets: Those to read: one, a list, or `all`.
    """

    name: ClassVar[str] = "lettucedetect_code"
    embedded_layout: ClassVar[str | None] = "lettucedetect_code"
    official_files: ClassVar[Sequence[Patterns]] = (
        {
            "train": ["**/train-*.parquet", "train.jsonl"],
            "validation": ["**/validation-*.parquet", "validation.jsonl", "dev.jsonl"],
            "test": ["**/test-*.parquet", "test.jsonl"],
        },
    )
    address: ClassVar[str] = "https://huggingface.co/datasets/KRLabsOrg/lettucedetect-code-hallucination"
    option_names: ClassVar[Mapping[str, Sequence[str]]] = {"sets": CODE_SETS}
    options_for_all_rows: ClassVar[Mapping[str, Any]] = {"sets": ANY}
    sets: Names = ANY

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(LAYOUT)
        found = row.text("dataset").removeprefix(PREFIX)
        if not self._reads("sets", found, report):
            return
        answer, knowledge = row.text("answer"), row.text("context", empty_ok=True)
        history = last_turn(row, "question")
        if not knowledge.strip():  # the prompt has the question, too
            report.count("rows without a context, whose prompt is the knowledge")
            knowledge, history = row.text("prompt"), ()
        marked = read_spans(row, "labels", answer, "category", {name: name for name in RELATIONS})
        spans = []
        for span, item in marked:
            label = label_of(span.label, item.text("subcategory", empty_ok=True))
            spans.append(replace(span, label=label, **span_type(LABEL_SET, label)))
        labels = [item.text("label", empty_ok=True) for _, item in marked]
        yield Example(
            id=row.default_id,
            source=self.name,
            split=split,
            group=_read_group(row, found) or text_group(knowledge),
            knowledge=knowledge,
            history=history,
            response=answer,
            label=HALLUCINATED if spans else FAITHFUL,
            spans=tuple(spans),
            tags=tuple(dict.fromkeys(label for label in labels if label)),
            meta={
                "set": found,
                "task": row.text("task_type"),
                "language": row.text("language"),
                "modality": row.text("context_modality", empty_ok=True),
            },
        )


@dataclass(frozen=True, kw_only=True)
class LettuceDetectProse(LettuceDetectCode):
    """The same of prose: RAGTruth, and PsiloQA's answers in 14 languages, with types."""

    name: ClassVar[str] = "lettucedetect_prose"
    embedded_layout: ClassVar[str | None] = "lettucedetect_prose"
    address: ClassVar[str] = "https://huggingface.co/datasets/KRLabsOrg/lettucedetect-prose-hallucination"
    option_names: ClassVar[Mapping[str, Sequence[str]]] = {"sets": PROSE_SETS}


def label_of(category: str, subcategory: str) -> str:
    """Writes the label of a span: its category, which is its relation, and the subcategory if there is one."""
    return f"{category}/{subcategory}" if subcategory else category


def _read_group(row: Row, found: str) -> str:
    """Returns the repository that the metadata name, or the document or paper of its set; empty for none."""
    values: Any = row.values["metadata"]
    if isinstance(values, str):
        try:
            values = json.loads(values or "{}")
        except (ValueError, RecursionError) as error:
            raise BadRow(f"field 'metadata' is not JSON: {shorten(values)}") from error
    metadata = row.inside({} if values is None else values)
    repository, instance, document = (metadata.text(name, empty_ok=True) for name in ("repo", "instance_id", "doc_id"))
    if not repository and (match := INSTANCE.fullmatch(instance)):
        repository = match[1]
    if repository or found == README:
        return (repository or document).replace("/", "__")  # as an instance_id has it
    name = instance or document or metadata.text("paper_id", empty_ok=True)
    return f"{found}:{name}" if name else ""
