"""FaithCritic (Dziri et al. 2022, section 5.1): pairs of knowledge and response, derived from FaithDial.

Wizard of Wikipedia's response is hallucinated where it is tagged Hallucination (partly too) and faithful where it
is tagged Entailment (uncooperative or not); what is generic (or uncooperative) alone is dropped, with its edit. The
edited response is faithful, and belongs to training alone: the published test set holds WoW's responses.

The released code makes two mistakes, which `official=true` reproduces. A turn that was not edited gave its text twice:
an entailed one counted double, a hallucinated one got both labels. Here it gives one example, with the
label of its tags.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.datasets.faithdial import WizardTurn, faithdial_files, wizard_turns
from data_modules.reading.dataset import Source
from data_modules.reading.files import File
from data_modules.reading.rows import ReadReport, Row
from faithkit.records import FAITHFUL, HALLUCINATED, Example

LABELS = {"hallucinated": HALLUCINATED, "entailed": FAITHFUL}


@dataclass(frozen=True, kw_only=True)
class FaithCritic(Source):
    """FaithDial's turns as a critic's training and test pairs.

    Args:
        path: Folder or file of FaithDial, or `hub`.
        edited: `train` adds the edited responses outside validation and test splits; `all` adds them everywhere.
        official: The released rule with its faults, for comparison.
    """

    name: ClassVar[str] = "faithcritic"
    embedded_layout: ClassVar[str | None] = "faithdial"
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {
        "edited": ("train", "all"),
        "official": (True, False),
    }
    edited: str = "train"
    official: bool = False

    def files(self) -> Mapping[str, Sequence[File]]:
        return faithdial_files(self.path)

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        with_edited = self.edited == "all" or not split.startswith(("validation", "test"))
        for turn in wizard_turns(row, report):
            report.count(f"case: {turn.case}")
            label = LABELS.get(turn.kind)
            if label is None:
                report.count(f"dropped: {turn.kind}")
                continue
            yield self._example(turn, "original", split, label)
            # The release asks whether there is an original or it differs from the response: that is always so.
            if with_edited and (turn.edited or self.official):
                yield self._example(turn, "edited", split, FAITHFUL)

    def _example(self, turn: WizardTurn, which: str, split: str, label: str) -> Example:
        own_text = turn.original or turn.response
        return Example(
            id=f"{turn.id}:{which}",
            source=self.name,
            split=split,
            group=turn.dialogue,
            knowledge=turn.knowledge.strip() if self.official else turn.knowledge,
            response=own_text if which == "original" else turn.response,
            reference=turn.response if which == "original" and turn.edited else None,
            original=own_text if which == "edited" else None,
            label=label,
            tags=turn.tags or (),
            meta={"case": turn.case},
        )
