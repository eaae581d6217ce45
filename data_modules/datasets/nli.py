"""Records of natural language inference corpora: premise as knowledge, hypothesis as response.

Entailment is faithful. Contradiction is hallucinated, and so is neutral, which the premise does not support, unless the
switch drops it. A pair on which the annotators did not agree (`-`) is dropped.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from data_modules.reading.dataset import Source
from data_modules.reading.fields import text_group
from data_modules.reading.rows import ReadReport, Row
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, Example

# Premise, hypothesis and label, in the files of MNLI and SNLI and on the hub.
NAMES = {"official": ("sentence1", "sentence2", "gold_label"), "hub": ("premise", "hypothesis", "label")}
NO_GOLD = "no gold label"
WORDS = {"entailment": "entailment", "neutral": "neutral", "contradiction": "contradiction", "-": NO_GOLD}
# The hub's copies of MNLI and SNLI number the labels.
NUMBERS = {"0": "entailment", "1": "neutral", "2": "contradiction", "-1": NO_GOLD}


@dataclass(frozen=True, kw_only=True)
class NliSource(Source):
    """An inference corpus: its datasets say where their files lie, and which fields of a row make a pair.

    Args:
        neutral: What becomes of neutral pairs: hallucinated or drop.
    """

    options_for_all_rows: ClassVar[Mapping[str, Any]] = {"neutral": HALLUCINATED}
    neutral: str = HALLUCINATED

    def __post_init__(self) -> None:
        if self.neutral not in ("drop", HALLUCINATED):
            raise UserError(f"neutral is {self.neutral!r}", hint=f"use {HALLUCINATED} or drop")

    def pair(
        self,
        row: Row,
        split: str,
        report: ReadReport,
        *,
        names: tuple[str, str, str],
        labels: Mapping[str, str],
        id: str,
        group: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Iterator[Example]:
        """The record of one pair; none where it is dropped, which is counted.

        Args:
            names: Fields of premise, hypothesis and label.
            labels: The corpus's labels to entailment, neutral, contradiction or `no gold label`.
            group: The premise's own id; None makes one from its text.
        """
        premise, hypothesis = row.text(names[0]), row.text(names[1])
        relation = row.choice(names[2], labels)
        if relation == NO_GOLD or (relation == "neutral" and self.neutral == "drop"):
            report.count(f"dropped: {relation}")
            return
        yield Example(
            id=id,
            source=self.name,
            split=split,
            group=group or text_group(premise),
            knowledge=premise,
            response=hypothesis,
            label=FAITHFUL if relation == "entailment" else HALLUCINATED,
            # The corpus's own word; the hub's numbers say nothing to a reader.
            tags=(relation if labels is NUMBERS else " ".join(row.text(names[2]).split()),),
            meta=meta or {},
        )
