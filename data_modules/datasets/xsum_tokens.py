"""Summaries of XSum with tokens that people marked as hallucinated or not (Maynez et al. 2020; Zhou et al. 2021).

JSON lines of docid, system, source, summary, tokens, labels (1: hallucinated) and reference, with the outputs of four
systems and XSum's summary (`Gold`) for each document.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.reading.dataset import Source
from data_modules.reading.fields import identifier
from data_modules.reading.files import Patterns
from data_modules.reading.rows import BadRow, ReadReport, Row
from faithkit.errors import shorten
from faithkit.records import FAITHFUL, HALLUCINATED, UNTYPED, Example, Span

ADDRESS = "https://github.com/violet-zct/fairseq-detect-hallucination"
FILES = {"all": ["xsum_token*.jsonl"]}
LAYOUT = {"XSum tokens": ("docid", "system", "source", "summary", "tokens", "labels")}
QUOTES = "'\"`"


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
        # The labels are checked first: a wrong number of them is the clearer error.
        labels, num_tokens = row.items("labels"), len(row.items("tokens"))
        if len(labels) != num_tokens:
            raise BadRow(f"field 'labels' has {len(labels)} entries for {num_tokens} tokens")
        for place, label in enumerate(labels):
            if label not in (0, 1):
                raise BadRow(f"field 'labels[{place}]' must be 0 or 1, got {shorten(label)}")
        places = align(summary, row.texts("tokens"))
        runs: list[list[int]] = []  # of tokens of label 1
        for place, ((start, end), label) in enumerate(zip(places, labels, strict=True)):
            if not label:
                continue
            if place and labels[place - 1]:
                runs[-1][1] = end
            else:
                runs.append([start, end])
        spans = tuple(Span(start=start, end=end, label=UNTYPED) for start, end in runs)
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


def align(text: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Finds start and end of every token in the text: in order, with nothing but white space between them.

    The corpus escapes quotes (`bahrain\\'s`), and not every copy of it does so in tokens and summaries alike: a
    backslash before a quote may be in one and missing in the other.
    """
    places, end = [], 0
    for number, token in enumerate(tokens):
        while end < len(text) and text[end].isspace():
            end += 1
        start, inside = end, 0
        while inside < len(token):
            if text[end : end + 1] == token[inside]:
                end, inside = end + 1, inside + 1
            elif _escapes(text, end):
                end += 1
            elif _escapes(token, inside):
                inside += 1
            else:
                break
        if inside < len(token) or end == start:
            goes_on = shorten(text[start : start + 40])
            raise BadRow(f"field 'tokens[{number}]' is {shorten(token)}, but the summary goes on with {goes_on}")
        places.append((start, end))
    if rest := text[end:].strip():
        raise BadRow(f"field 'tokens' ends before the summary does: {shorten(rest[:40])} is left")
    return places


def _escapes(text: str, place: int) -> bool:
    return text[place : place + 1] == "\\" and text[place + 1 : place + 2] in tuple(QUOTES)
