"""SNLI (Bowman et al. 2015): image captions and hypotheses about them.

Official files: https://nlp.stanford.edu/projects/snli/ (JSON lines). `hub` reads stanfordnlp/snli, which has no pair
ids: its rows are counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.datasets.nli import NAMES, NUMBERS, WORDS, NliSource
from data_modules.reading.dataset import SPLITS
from data_modules.reading.files import HUB, File, find_files
from data_modules.reading.hub import HubSplit
from data_modules.reading.rows import ReadReport, Row
from faithkit.records import Example

ADDRESS = "https://nlp.stanford.edu/projects/snli/"
FILES = {"train": ["snli_1.0_train.jsonl"], "validation": ["snli_1.0_dev.jsonl"], "test": ["snli_1.0_test.jsonl"]}
LAYOUTS = {"official": (*NAMES["official"], "pairID"), "hub": NAMES["hub"]}


@dataclass(frozen=True, kw_only=True)
class Snli(NliSource):
    """Premise and hypothesis; the group is the premise's text.

    Args:
        path: Folder, one file, or `hub`.
        neutral: What becomes of neutral pairs: hallucinated or drop.
    """

    name: ClassVar[str] = "snli"
    ids_repeat: ClassVar[bool] = True
    embedded_layout: ClassVar[str | None] = "snli"

    def files(self) -> Mapping[str, Sequence[File]]:
        if self.path != HUB:
            return find_files(self.path, FILES, address=ADDRESS)
        return {split: [HubSplit(dataset="stanfordnlp/snli", split=split, address=ADDRESS)] for split in SPLITS}

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        layout = row.layout(LAYOUTS)
        official = layout == "official"
        yield from self.pair(
            row,
            split,
            report,
            names=NAMES[layout],
            labels=WORDS if official else NUMBERS,
            id=row.text("pairID") if official else row.default_id,
        )
