"""Dialogue NLI (Welleck et al. 2019): sentences of persona chats that agree, contradict each other, or neither.

Official files: https://wellecks.com/dialogue_nli/, `dialogue_nli_{train,dev,test,verified_test}.jsonl`: each one
JSON list, in spite of its suffix. (The archive's extra training file is cut short, and is not read.)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.datasets.nli import NliSource
from data_modules.reading.files import File, find_files
from data_modules.reading.rows import ReadReport, Row
from faithkit.records import Example

ADDRESS = "https://wellecks.com/dialogue_nli/"
FILES = {
    "train": ["**/dialogue_nli_train.jsonl"],
    "validation": ["**/dialogue_nli_dev.jsonl"],
    "test": ["**/dialogue_nli_test.jsonl"],
    "test_verified": ["**/dialogue_nli_verified_test.jsonl"],
}
LAYOUTS = {"official": ("sentence1", "sentence2", "label", "id")}
LABELS = {"positive": "entailment", "neutral": "neutral", "negative": "contradiction"}


@dataclass(frozen=True, kw_only=True)
class DialogueNli(NliSource):
    """First sentence as knowledge, second as response; the group is the first sentence's text.

    Args:
        path: Folder or file.
        neutral: What becomes of neutral pairs: hallucinated or drop.
    """

    name: ClassVar[str] = "dnli"
    ids_repeat: ClassVar[bool] = True
    embedded_layout: ClassVar[str | None] = "dnli"

    def files(self) -> Mapping[str, Sequence[File]]:
        return find_files(self.path, FILES, address=ADDRESS)

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(LAYOUTS)
        yield from self.pair(
            row,
            split,
            report,
            names=("sentence1", "sentence2", "label"),
            labels=LABELS,
            id=row.text("id"),
            meta={"dtype": row.values["dtype"]} if "dtype" in row.values else {},
        )
