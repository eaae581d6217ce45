"""Summaries of XSum with tokens that people marked as hallucinated or not (Maynez et al. 2020; Zhou et al. 2021).

JSON lines of docid, system, source, summary, tokens, labels (1: hallucinated) and reference, with the outputs of four
systems and XSum's summary (`Gold`) for each document.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.reading import Patterns, ReadReport, Row, Source, identifier, read_token_spans
from faithkit.records import FAITHFUL, HALLUCINATED, Example

ADDRESS = "https://github.com/violet-zct/fairseq-detect-hallucination"
FILES = {"all": ["xsum_token*.jsonl"]}
LAYOUT = {"XSum tokens": ("docid", "system", "source", "summary", "tokens", "labels")}


@dataclass(frozen=True, kw_only=True)
class XsumTokens(Source):
    """Summaries with spans: hallucinated tokens that follow each other are one. The group is the document.

    Args:
        path: A file, or the folder that holds it. There is no official split.
    """

    name: ClassVar[str] = "xsum_tokens"
    embedded_layout: ClassVar[str | None] = "xsum_tokens"
    official_files: ClassVar[Sequence[Patterns]] = (FILES,)
    address: ClassVar[str] = ADDRESS

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(LAYOUT)
        docid, system, summary = identifier(row, "docid"), row.text("system"), row.text("summary")
        spans = read_token_spans(row, "tokens", "labels", summary)
        yield Example(
            id=f"{docid}:{system}",
            source=self.name,
            split=split,
            group=docid,
            knowledge=row.text("source"),
            response=summary,
            reference=row.text("reference", empty_ok=True) or None,
            label=HALLUCINATED if spans else FAITHFUL,
            spans=spans,
            meta={"task": "Summary", "model": system},
        )
