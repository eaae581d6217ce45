"""ConjNLI (Saha et al. 2020): inference over conjunctions.

Official files: https://github.com/swarnaHub/ConjNLI, folder `data/NLI` (TSV, unquoted, with a byte order mark).
The test file has no label column.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.datasets.nli import WORDS, NliSource
from data_modules.reading.fields import text_group
from data_modules.reading.files import File, find_files
from data_modules.reading.rows import ReadReport, Row
from faithkit.records import Example

ADDRESS = "https://github.com/swarnaHub/ConjNLI, folder data/NLI"
FILES = {"train": ["adversarial_train_15k.tsv"], "validation": ["conj_dev.tsv"], "test": ["conj_test.tsv"]}
LAYOUTS = {"labelled": ("Premise", "Hypothesis", "Label"), "unlabelled": ("Premise", "Hypothesis")}


@dataclass(frozen=True, kw_only=True)
class ConjNli(NliSource):
    """Premise and hypothesis; the group is the premise's text, ids are `<file stem>:<row>`.

    Args:
        path: Folder or file.
        neutral: What becomes of neutral pairs: hallucinated or drop.
    """

    name: ClassVar[str] = "conjnli"
    default_split: ClassVar[str] = "validation"  # the test set has no labels
    embedded_layout: ClassVar[str | None] = "conjnli"

    def files(self) -> Mapping[str, Sequence[File]]:
        return find_files(self.path, FILES, address=ADDRESS)

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        if row.layout(LAYOUTS) == "unlabelled":
            report.count("unlabelled")
            premise = row.text("Premise")
            yield Example(
                id=row.default_id,
                source=self.name,
                split=split,
                group=text_group(premise),
                knowledge=premise,
                response=row.text("Hypothesis"),
            )
            return
        yield from self.pair(
            row,
            split,
            report,
            names=("Premise", "Hypothesis", "Label"),
            labels=WORDS,
            id=row.default_id,
        )
