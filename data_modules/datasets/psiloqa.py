"""PsiloQA (Rykov et al. 2025): answers in 14 languages, with the spans that a passage of Wikipedia does not support.

Official files: https://huggingface.co/datasets/s-nlp/PsiloQA, `data/{train,validation,test}-*.parquet`. A row has id,
lang, wiki_title, wiki_url, llm_checkpoint, wiki_passage, question, golden_answer, llm_answer, annotated_span (the
answer with [HAL] and [/HAL] around spans), complexity and labels, the spans as pairs of offsets in characters. A
language model marked the spans; rows without one are faithful.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from data_modules.reading import (
    ANY,
    SPLITS,
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
from faithkit.records import FAITHFUL, HALLUCINATED, UNTYPED, Example

LANGUAGES = ("ar", "ca", "cs", "de", "en", "es", "eu", "fa", "fi", "fr", "hi", "it", "sv", "zh")
LAYOUT = {"PsiloQA": ("id", "lang", "wiki_passage", "question", "llm_answer", "labels")}
MARKED = re.compile(r"\[HAL\](.*?)\[/HAL\]", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class PsiloQa(Source):
    """Answers with spans. The group is the passage: several questions are about one.

    Args:
        path: A file, or the folder of the files.
        languages: Those to read: one, a list, or `all`.
    """

    name: ClassVar[str] = "psiloqa"
    embedded_layout: ClassVar[str | None] = "psiloqa"
    official_files: ClassVar[Sequence[Patterns]] = (
        {split: [f"**/{split}-*.parquet", f"**/{split}.jsonl"] for split in SPLITS},
    )
    address: ClassVar[str] = "https://huggingface.co/datasets/s-nlp/PsiloQA"
    option_names: ClassVar[Mapping[str, Sequence[str]]] = {"languages": LANGUAGES}
    options_for_all_rows: ClassVar[Mapping[str, Any]] = {"languages": ANY}
    languages: Names = ANY

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(LAYOUT)
        language = row.choice("lang", {name: name for name in LANGUAGES})
        if not self._reads("languages", language, report):
            return
        answer, passage = row.text("llm_answer"), row.text("wiki_passage")
        pairs = row.items("labels")
        for place, pair in enumerate(pairs):
            if not (isinstance(pair, list) and len(pair) == 2):
                raise BadRow(f"field 'labels[{place}]' must be a pair of offsets, got {shorten(pair)}")
        bounds = [{"start": start, "end": end} for start, end in pairs]
        found = read_spans(row.inside({"labels": bounds}), "labels", answer, "label", {}, UNTYPED)
        spans = tuple(span for span, _ in found)
        marked = MARKED.findall(row.text("annotated_span", empty_ok=True))
        if marked and marked != [answer[span.start : span.end] for span in spans]:
            report.count("labels and annotated_span disagree, the labels count")
        yield Example(
            id=row.text("id"),
            source=self.name,
            split=split,
            group=text_group(passage),
            knowledge=passage,
            history=last_turn(row, "question"),
            response=answer,
            reference=row.text("golden_answer", empty_ok=True) or None,
            label=HALLUCINATED if spans else FAITHFUL,
            spans=spans,
            meta={"language": language, "model": row.text("llm_checkpoint", empty_ok=True)},
        )
