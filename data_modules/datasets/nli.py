"""Records of natural language inference corpora: premise as knowledge, hypothesis as response.

Entailment is faithful. Contradiction is hallucinated, and so is neutral, which the premise does not support, unless the
switch drops it. A pair on which the annotators did not agree (`-`) is dropped.
"""

from collections.abc import Mapping
from typing import Any

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


def check_neutral(value: str) -> None:
    """Raises: UserError: `neutral` is neither hallucinated nor drop."""
    if value not in ("drop", HALLUCINATED):
        raise UserError(f"neutral is {value!r}", hint=f"use {HALLUCINATED} or drop")


def nli_example(
    row: Row,
    report: ReadReport,
    *,
    source: str,
    split: str,
    neutral: str,
    names: tuple[str, str, str],
    labels: Mapping[str, str],
    id: str,
    group: str | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Example | None:
    """The record of one pair, or None where it is dropped, which is counted.

    Args:
        names: Fields of premise, hypothesis and label.
        labels: The corpus's labels to entailment, neutral, contradiction or `no gold label`.
        group: The premise's own id; None makes one from its text.
    """
    premise, hypothesis = row.text(names[0]), row.text(names[1])
    relation = row.choice(names[2], labels)
    if relation == NO_GOLD or (relation == "neutral" and neutral == "drop"):
        report.count(f"dropped: {relation}")
        return None
    return Example(
        id=id,
        source=source,
        split=split,
        group=group or text_group(premise),
        knowledge=premise,
        response=hypothesis,
        label=FAITHFUL if relation == "entailment" else HALLUCINATED,
        # The corpus's own word; the hub's numbers say nothing to a reader.
        tags=(relation if labels is NUMBERS else " ".join(row.text(names[2]).split()),),
        meta=meta or {},
    )
