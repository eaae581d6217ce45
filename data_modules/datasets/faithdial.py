"""FaithDial (Dziri et al. 2022): Wizard-of-Wikipedia dialogues with hallucinated wizard turns edited by people.

Official files: https://huggingface.co/datasets/McGill-NLP/FaithDial (folder `data`), a JSON list of dialogues
{dialog_idx, utterances: [{history, knowledge, response, original_response, BEGIN, VRM}]}. The BEGIN tags are about
Wizard of Wikipedia's text: `original_response`, or `response` if it was not edited.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.reading.dataset import Source
from data_modules.reading.fields import alternate
from data_modules.reading.files import HUB, File, find_files
from data_modules.reading.rows import BadRow, ReadReport, Row, check_text
from data_modules.reading.saved_datasets import HubSplit
from faithkit.errors import shorten
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Turn

ADDRESS = "https://huggingface.co/datasets/McGill-NLP/FaithDial"
REVISION = "7a414e80725eac766f2602676dc8b39f80b061e4"
FILES = {
    "train": ["train.json"],
    "validation": ["valid.json"],
    "test": ["test.json"],
    # WoW's division: topics that training has seen (random) and has not (topic).
    "validation_random": ["valid_random_split.json"],
    "validation_topic": ["valid_topic_split.json"],
    "test_random": ["test_random_split.json"],
    "test_topic": ["test_topic_split.json"],
}
LAYOUT = {"faithdial": ("utterances",)}
TAGS = ("hallucination", "partial hallucination", "entailment", "generic", "uncooperative")


@dataclass(frozen=True, slots=True, kw_only=True)
class WizardTurn:
    """One wizard turn; `tags` is None if it was not judged."""

    dialogue: str
    index: int
    history: tuple[Turn, ...]
    knowledge: str
    response: str
    original: str | None
    tags: tuple[str, ...] | None
    vrm: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.dialogue}:{self.index}"

    @property
    def edited(self) -> bool:
        return self.original is not None and self.original.strip() != self.response.strip()

    @property
    def kind(self) -> str:
        """The tags of WoW's text in short: hallucinated, entailed, generic or uncooperative alone, untagged."""
        tags = {tag.strip().lower() for tag in self.tags or ()}
        if not tags:
            return "untagged"
        if tags & {"hallucination", "partial hallucination"}:
            return "hallucinated"  # partly too: tagged Hallucination and Entailment
        if "entailment" in tags:
            return "entailed"
        return "generic alone" if "generic" in tags else "uncooperative alone"

    @property
    def case(self) -> str:
        return f"{'edited' if self.edited else 'unedited'}, {self.kind}"


def wizard_turns(row: Row, report: ReadReport) -> Iterator[WizardTurn]:
    """Yields the turns of one dialogue; a bad one is rejected alone."""
    row.layout(LAYOUT)
    index = row.values.get("dialog_idx", row.number)  # FaithDial's README lets users' data leave it out
    if not isinstance(index, int | str) or isinstance(index, bool) or index == "":
        raise BadRow(f"field 'dialog_idx' must be a number, got {shorten(index)}")
    dialogue = check_text(str(index), "dialog_idx")
    for position, values in enumerate(row.items("utterances")):
        try:
            turn = _turn(row.inside(values), dialogue, position)
        except BadRow as error:
            report.reject(row.file, row.line, error.within(f"utterance {position}"), values)
        else:
            yield turn


def _turn(row: Row, dialogue: str, index: int) -> WizardTurn:
    tags = None if row.values.get("BEGIN") is None else tuple(row.texts("BEGIN"))
    unknown = [tag for tag in tags or () if tag.strip().lower() not in TAGS]
    if unknown:
        raise BadRow(f"field 'BEGIN' has {shorten(unknown[0])}; known: {', '.join(TAGS)}")
    original = row.text("original_response", empty_ok=True)
    return WizardTurn(
        dialogue=dialogue,
        index=index,
        history=alternate(row.texts("history")),
        knowledge=row.text("knowledge"),
        response=row.text("response"),
        original=original if original.strip() else None,
        tags=tags,
        vrm=() if row.values.get("VRM") is None else tuple(row.texts("VRM")),
    )


def faithdial_files(path: str) -> Mapping[str, Sequence[File]]:
    """Returns the official files, or the same files on the hub."""
    if path != HUB:
        return find_files(path, FILES, address=ADDRESS)
    name = "McGill-NLP/FaithDial"
    # The repository loads through a script, which `datasets` refuses: its JSON files are read as they are.
    return {
        split: [HubSplit(dataset=name, split=split, data_file=f"data/{file}", revision=REVISION, address=ADDRESS)]
        for split, (file,) in FILES.items()
    }


@dataclass(frozen=True, kw_only=True)
class FaithDial(Source):
    """Wizard turns with their history: what generators learn from.

    An edited response is faithful. An unedited one is what its tags say; generic alone and untagged have no label.

    Args:
        path: Folder, one file, or `hub`.
    """

    name: ClassVar[str] = "faithdial"
    embedded_layout: ClassVar[str | None] = "faithdial"

    def files(self) -> Mapping[str, Sequence[File]]:
        return faithdial_files(self.path)

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        for turn in wizard_turns(row, report):
            report.count(f"case: {turn.case}")
            yield Example(
                id=turn.id,
                source=self.name,
                split=split,
                group=turn.dialogue,
                knowledge=turn.knowledge,
                history=turn.history,
                response=turn.response,
                reference=turn.response,
                original=turn.original,
                label=_label(turn),
                tags=turn.tags or (),
                meta={"vrm": list(turn.vrm)} if turn.vrm else {},
            )


def _label(turn: WizardTurn) -> str | None:
    if turn.edited:
        return None if turn.kind == "untagged" else FAITHFUL
    return {"hallucinated": HALLUCINATED, "entailed": FAITHFUL, "uncooperative alone": FAITHFUL}.get(turn.kind)
