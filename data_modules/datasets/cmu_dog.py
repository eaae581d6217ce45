"""CMU-DoG (Zhou et al. 2018): two people talk about a film; one or both see a text of four sections, one after another.

Official files: https://github.com/festvox/datasets-CMU_DoG, `Conversations/<split>/*.json` and `WikiData/*.json`. Turns
that were cut out of them (`turn_rows`) are read too; the report counts which it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from data_modules.datasets.turn_rows import EMPTY, OPENS, find_turns, is_turn, read_file, turn_example
from data_modules.datasets.turn_rows import FIELDS as TURN_FIELDS
from data_modules.reading.dataset import Records, Source
from data_modules.reading.fields import SEEKER, WIZARD
from data_modules.reading.files import File
from data_modules.reading.rows import BadRow, ReadReport, Row, read_rows
from faithkit.errors import UserError, shorten
from faithkit.records import Example, Turn

ADDRESS = "https://github.com/festvox/datasets-CMU_DoG"
NAMES = {"train": "train", "validation": "valid", "test": "test"}
TURNS = {split: [f"cmu_dog_{name}_turns.jsonl"] for split, name in NAMES.items()}
RAW = {split: [f"Conversations/{name}/*.json"] for split, name in NAMES.items()}
DOCUMENTS = "WikiData"
LAYOUTS = {"turns": TURN_FIELDS, "conversations": ("wikiDocumentIdx", "history", "whoSawDoc")}


class SpokenTurn(NamedTuple):
    """Consecutive messages of one person while one section was shown."""

    position: int  # of the first message
    user: str
    section: str
    text: str


@dataclass(frozen=True, kw_only=True)
class CmuDog(Source):
    """Turns of those who saw the text, with the section that was shown, without labels.

    Messages that one person sent in a row are one turn. Ids of official conversations are `<file stem>:<message>`.

    Args:
        path: The official folder, its `Conversations`, or a folder or file of turns.
    """

    name: ClassVar[str] = "cmu_dog"
    embedded_layout: ClassVar[str | None] = "cmu_dog"

    def files(self) -> Mapping[str, Sequence[File]]:
        """The conversations of each split, followed by the documents: its records depend on both."""
        found = find_turns(self.path, TURNS, RAW, ADDRESS)
        return {split: [*files, *_documents_beside(files[0])] for split, files in found.items()}

    def read_split(self, split: str, report: ReadReport) -> Records:
        """The records of a split, file by file."""
        for file in self.files()[split]:
            assert isinstance(file, Path)
            if file.parent.name != DOCUMENTS:
                yield from read_file(self, file, split, report)

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        layout = row.layout(LAYOUTS)
        report.count(f"layout: {layout}")
        if is_turn(row):
            yield turn_example(row, self.name, split)
        else:
            yield from self._conversation(row, split, report)

    def _conversation(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        document = self._document(row)
        saw = row.texts("whoSawDoc")
        conversation = Path(row.file).stem
        turns = _spoken_turns(row, report)
        for place, turn in enumerate(turns):
            if turn.section not in document:
                raise BadRow(f"message {turn.position}: the document has no section {turn.section}")
            if turn.user not in saw:
                report.count("dropped: has not seen the document")
            elif not place:
                report.count(OPENS)
            else:
                yield Example(
                    id=f"{conversation}:{turn.position}",
                    source=self.name,
                    split=split,
                    group=conversation,
                    knowledge=document[turn.section],
                    history=tuple(
                        Turn(speaker=WIZARD if other.user == turn.user else SEEKER, text=other.text)
                        for other in turns[:place]
                    ),
                    response=turn.text,
                    reference=turn.text,
                    meta={"movie": row.values["wikiDocumentIdx"], "doc_idx": int(turn.section)},
                )

    def _document(self, row: Row) -> Mapping[str, str]:
        index = row.values["wikiDocumentIdx"]
        if not isinstance(index, int) or index not in self._documents:
            problem = f"field 'wikiDocumentIdx' is {shorten(index)}: {DOCUMENTS} has no such document"
            raise BadRow(problem, hint=f"put the official {DOCUMENTS} beside Conversations")
        return self._documents[index]

    @cached_property
    def _documents(self) -> Mapping[int, Mapping[str, str]]:
        files = dict.fromkeys(file for files in self.files().values() for file in files)
        return dict(_read_document(f) for f in files if isinstance(f, Path) and f.parent.name == DOCUMENTS)


def _documents_beside(conversation: Path) -> list[Path]:
    return sorted((conversation.parents[2] / DOCUMENTS).glob("*.json")) if _is_raw(conversation) else []


def _is_raw(file: Path) -> bool:
    return len(file.parents) > 2 and file.parents[1].name == Path(RAW["train"][0]).parts[0]


def _read_document(file: Path) -> tuple[int, Mapping[str, str]]:
    """Reads a document: its number and the texts of its sections."""
    row = next(read_rows(file, ReadReport()))
    index = row.values.get("wikiDocumentIdx")
    if not isinstance(index, int):
        problem = f"field 'wikiDocumentIdx' must be a number, got {shorten(index)}"
        raise UserError(problem, place=str(file), hint="fetch the file again")
    return index, {name: section_text(value) for name, value in row.values.items() if name.isdigit()}


def section_text(section: str | Mapping[str, Any]) -> str:
    """Writes a section as one text; the first one is a table: its fields stand as `name: value`, sorted by name."""
    if isinstance(section, str):
        return section
    fields = {name: "; ".join(value) if isinstance(value, list) else value for name, value in section.items()}
    return " ".join(f"{name}: {fields[name]}" for name in sorted(fields))


def _spoken_turns(row: Row, report: ReadReport) -> list[SpokenTurn]:
    turns: list[SpokenTurn] = []
    for position, values in enumerate(row.items("history")):
        try:
            message = row.inside(values)
            user, text = message.text("uid"), message.text("text", empty_ok=True)
        except BadRow as error:
            raise error.within(f"message {position}") from error  # the turns after it would lack their history
        turn = SpokenTurn(position, user, str(message.values.get("docIdx")), text)
        if not turn.text.strip():
            report.count(EMPTY)
        elif turns and (turns[-1].user, turns[-1].section) == (turn.user, turn.section):
            turns[-1] = turns[-1]._replace(text=f"{turns[-1].text} {turn.text}")
        else:
            turns.append(turn)
    return turns
