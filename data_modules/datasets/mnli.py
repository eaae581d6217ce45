"""MultiNLI (Williams et al. 2018).

Official files: https://cims.nyu.edu/~sbowman/multinli/ (JSON lines), or GLUE's MNLI folder (TSV, unquoted). The test
set has no labels. `hub` reads nyu-mll/multi_nli.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.datasets.nli import NAMES, NUMBERS, WORDS, NliSource
from data_modules.reading.files import HUB, File, find_files
from data_modules.reading.hub import HubSplit
from data_modules.reading.rows import ReadReport, Row
from faithkit.records import Example

ADDRESS = "https://cims.nyu.edu/~sbowman/multinli/"
FILES = {
    "train": ["multinli_1.0_train.jsonl"],
    "validation": ["multinli_1.0_dev_matched.jsonl"],
    "validation_mismatched": ["multinli_1.0_dev_mismatched.jsonl"],
}
GLUE = {"train": ["train.tsv"], "validation": ["dev_matched.tsv"], "validation_mismatched": ["dev_mismatched.tsv"]}
ON_HUB = {"train": "train", "validation": "validation_matched", "validation_mismatched": "validation_mismatched"}
LAYOUTS = {layout: (*names, "pairID", "promptID") for layout, names in NAMES.items()}


@dataclass(frozen=True, kw_only=True)
class Mnli(NliSource):
    """Premise and hypothesis of ten genres; `validation` is the matched set, the mismatched one has its own name.

    Args:
        path: Folder, one file, or `hub`.
        neutral: What becomes of neutral pairs: hallucinated or drop.
    """

    name: ClassVar[str] = "mnli"
    default_split: ClassVar[str] = "validation"  # the test set has no labels
    ids_repeat: ClassVar[bool] = True
    embedded_layout: ClassVar[str | None] = "mnli"

    def files(self) -> Mapping[str, Sequence[File]]:
        if self.path != HUB:
            return find_files(self.path, FILES, GLUE, address=ADDRESS)
        return {s: [HubSplit(dataset="nyu-mll/multi_nli", split=h, address=ADDRESS)] for s, h in ON_HUB.items()}

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        layout = row.layout(LAYOUTS)
        yield from self.pair(
            row,
            split,
            report,
            names=NAMES[layout],
            labels=WORDS if layout == "official" else NUMBERS,
            id=row.text("pairID"),
            group=row.text("promptID"),
            meta={"genre": row.values.get("genre")},
        )
