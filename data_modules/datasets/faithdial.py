"""FaithDial (Dziri et al. 2022): Wizard-of-Wikipedia dialogues with hallucinated wizard turns edited by people.

Official files: https://huggingface.co/datasets/McGill-NLP/FaithDial (folder `data`), a JSON list of dialogues
{dialog_idx, utterances: [{history, knowledge, response, original_response, BEGIN, VRM}]}. The BEGIN tags are about
Wizard of Wikipedia's text: `original_response`, or `response` if it was not edited. Files for the released objectives
also have `negative_samples` (texts; `data.negatives.kinds=[given]` contrasts with them) and `control_tokens`
(`control.source=official` uses them; otherwise control=ctrl measures its own).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.reading import BadRow, File, HubSplit, Patterns, ReadReport, Row, Source, alternate, check_text
from faithkit.errors import shorten
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Turn

ADDRESS = "https://huggingface.co/datasets/McGill-NLP/FaithDial"
HUB_NAME = "McGill-NLP/FaithDial"
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
# Fields that only some files have, and what becomes of them.
OPTIONAL = {
    "negative_samples": "used by data.negatives.kinds=[given]",
    "control_tokens": "used by control.source=official",
}
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
    negatives: tuple[str, ...] = ()
    control_tokens: tuple[str, ...] = ()

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
        with report.rejecting(row, f"utterance {position}", values):
            utterance = row.inside(values)
            tags = None if utterance.values.get("BEGIN") is None else tuple(utterance.texts("BEGIN"))
            unknown = [tag for tag in tags or () if tag.strip().lower() not in TAGS]
            if unknown:
                raise BadRow(f"field 'BEGIN' has {shorten(unknown[0])}; known: {', '.join(TAGS)}")
            original = utterance.text("original_response", empty_ok=True)
            vrm, negatives, control_tokens = (
                () if utterance.values.get(name) is None else tuple(utterance.texts(name))
                for name in ("VRM", "negative_samples", "control_tokens")
            )
            turn = WizardTurn(
                dialogue=dialogue,
                index=position,
                history=alternate(utterance.texts("history")),
                knowledge=utterance.text("knowledge"),
                response=utterance.text("response"),
                original=original if original.strip() else None,
                tags=tags,
                vrm=vrm,
                negatives=negatives,
                control_tokens=control_tokens,
            )
            for field, use in OPTIONAL.items():
                if values.get(field):
                    report.count(f"turns with {field} ({use})")
            yield turn


@dataclass(frozen=True, kw_only=True)
class FaithDialFiles(Source):
    """A dataset that is made of FaithDial's files; `path` is a folder, one file, or `hub`."""

    embedded_layout: ClassVar[str | None] = "faithdial"
    official_files: ClassVar[Sequence[Patterns]] = (FILES,)
    address: ClassVar[str] = ADDRESS
    # The repository loads through a script, which `datasets` refuses: its JSON files are read as they are.
    hub_splits: ClassVar[Mapping[str, File]] = {
        split: HubSplit(dataset=HUB_NAME, split=split, data_file=f"data/{file}", revision=REVISION, address=ADDRESS)
        for split, (file,) in FILES.items()
    }


@dataclass(frozen=True, kw_only=True)
class FaithDial(FaithDialFiles):
    """Wizard turns with their history: what generators learn from.

    An edited response is faithful. An unedited one is what its tags say; generic alone and untagged have no label.
    """

    name: ClassVar[str] = "faithdial"

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        for turn in wizard_turns(row, report):
            report.count(f"case: {turn.case}")
            labels = {"hallucinated": HALLUCINATED, "entailed": FAITHFUL, "uncooperative alone": FAITHFUL}
            label = labels.get(turn.kind)
            if turn.edited:
                label = None if turn.kind == "untagged" else FAITHFUL
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
                label=label,
                tags=turn.tags or (),
                negatives=turn.negatives,
                meta={n: list(v) for n, v in (("vrm", turn.vrm), ("control_tokens", turn.control_tokens)) if v},
            )


CRITIC_LABELS = {"hallucinated": HALLUCINATED, "entailed": FAITHFUL}


@dataclass(frozen=True, kw_only=True)
class FaithCritic(FaithDialFiles):
    """FaithCritic (section 5.1): FaithDial's turns as a critic's training and test pairs.

    Wizard of Wikipedia's response is hallucinated where it is tagged Hallucination (partly too) and faithful where it
    is tagged Entailment (uncooperative or not); what is generic (or uncooperative) alone is dropped, with its edit. The
    edited response is faithful, and belongs to training alone: the published test set holds WoW's responses.

    The released code makes two mistakes, which `official=true` reproduces. A turn that was not edited gave its text
    twice: an entailed one counted double, a hallucinated one got both labels. Here it gives one example, with the
    label of its tags.

    Args:
        edited: `train` adds the edited responses outside validation and test splits; `all` adds them everywhere.
        official: The released rule with its faults, for comparison.
    """

    name: ClassVar[str] = "faithcritic"
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {
        "edited": ("train", "all"),
        "official": (True, False),
    }
    edited: str = "train"
    official: bool = False

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        with_edited = self.edited == "all" or not split.startswith(("validation", "test"))
        for turn in wizard_turns(row, report):
            report.count(f"case: {turn.case}")
            label = CRITIC_LABELS.get(turn.kind)
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
