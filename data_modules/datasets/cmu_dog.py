"""CMU-DoG (Zhou et al. 2018): two people talk about a film; one or both see a text of four sections, one after another.

Official files: https://github.com/festvox/datasets-CMU_DoG, `Conversations/<split>/*.json` and `WikiData/*.json`. Turns
that were cut out of them (`turn_rows`) are read too; the report counts which it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

from data_modules.reading import (
    SEEKER,
    WIZARD,
    BadRow,
    Patterns,
    ReadReport,
    Records,
    Row,
    check_text,
    read_rows,
    reading,
)
from data_modules.reading.dialogues import EMPTY, OPENS, ConversationSource
from data_modules.reading.dialogues import FIELDS as TURN_FIELDS
from faithkit.errors import shorten
from faithkit.records import Example, Turn

ADDRESS = "https://github.com/festvox/datasets-CMU_DoG"
SPLIT_FILES = {"train": "train", "validation": "valid", "test": "test"}
TURNS = {split: [f"cmu_dog_{name}_turns.jsonl"] for split, name in SPLIT_FILES.items()}
RAW = {split: [f"Conversations/{name}/*.json"] for split, name in SPLIT_FILES.items()}
DOCUMENTS = "WikiData"
LAYOUTS = {"turns": TURN_FIELDS, "conversations": ("wikiDocumentIdx", "history", "whoSawDoc")}


class SpokenTurn(NamedTuple):
    """Consecutive messages of one person while one section was shown."""

    position: int  # of the first message
    user: str
    section: str
    text: str


@dataclass(frozen=True, kw_only=True)
class CmuDog(ConversationSource):
    """Turns of those who saw the text, with the section that was shown, without labels.

    Messages that one person sent in a row are one turn. Ids of official conversations are `<file stem>:<message>`.

    Args:
        path: The official folder, its `Conversations`, or a folder or file of turns.
    """

    name: ClassVar[str] = "cmu_dog"
    embedded_layout: ClassVar[str | None] = "cmu_dog"
    official_files: ClassVar[Sequence[Patterns]] = (TURNS, RAW)
    address: ClassVar[str] = ADDRESS

    def companions(self, file: Path) -> list[Path]:
        """Returns the documents."""
        if len(file.parents) < 3 or file.parents[1].name != Path(RAW["train"][0]).parts[0]:
            return []
        return sorted(document for document in (file.parents[2] / DOCUMENTS).glob("*.json") if document.is_file())

    def read_split(self, split: str, report: ReadReport) -> Records:
        """Yields the records of a split, file by file; bad documents are reported first."""
        for path, line, error, values in self._wiki_data[1]:
            report.reject(path, line, error, values)
        yield from super().read_split(split, report)

    def conversations(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        report.count(f"layout: {row.layout(LAYOUTS)}")
        index, documents = row.values["wikiDocumentIdx"], self._wiki_data[0]
        if not isinstance(index, int) or index not in documents:
            problem = f"field 'wikiDocumentIdx' is {shorten(index)}: {DOCUMENTS} has no such document"
            raise BadRow(problem, hint=f"put the official {DOCUMENTS} next to Conversations")
        document = documents[index]
        saw = row.texts("whoSawDoc")
        conversation = Path(row.file).stem
        turns: list[SpokenTurn] = []
        for position, values in enumerate(row.items("history")):
            with reading(f"message {position}"):  # a bad one rejects the others too: they would lack their history
                message = row.inside(values)
                user, text = message.text("uid"), message.text("text", empty_ok=True)
            turn = SpokenTurn(position, user, str(message.values.get("docIdx")), text)
            if not turn.text.strip():
                report.count(EMPTY)
            elif turns and (turns[-1].user, turns[-1].section) == (turn.user, turn.section):
                turns[-1] = turns[-1]._replace(text=f"{turns[-1].text} {turn.text}")
            else:
                turns.append(turn)
        for place, turn in enumerate(turns):
            if turn.section not in document:
                raise BadRow(f"message {turn.position}: the document has no section {turn.section}")
            if not document[turn.section].strip():
                report.count("dropped: the section shown is empty")
            elif turn.user not in saw:
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

    @cached_property
    def _wiki_data(self) -> tuple[dict[int, Mapping[str, str]], list[tuple[str, int, BadRow, object]]]:
        """The documents by their numbers, and the bad ones with their places."""
        files = dict.fromkeys(file for files in self.files().values() for file in files)
        documents: dict[int, Mapping[str, str]] = {}
        bad: list[tuple[str, int, BadRow, object]] = []
        for file in files:
            if isinstance(file, Path) and file.parent.name == DOCUMENTS:
                row = next(read_rows(file, ReadReport()))
                try:
                    index = row.values.get("wikiDocumentIdx")
                    if not isinstance(index, int) or isinstance(index, bool):
                        raise BadRow(f"field 'wikiDocumentIdx' must be a number, got {shorten(index)}")
                    sections = {name: value for name, value in row.values.items() if name.isdecimal()}
                    for name, value in sections.items():
                        if isinstance(value, Mapping):  # the first section is a table
                            cells = (f"{check_text(key, 'name')}: {_cell(key, value[key])}" for key in sorted(value))
                            sections[name] = " ".join(cells)
                        else:
                            sections[name] = check_text(value, "section", empty_ok=True)
                    documents[index] = sections
                except BadRow as error:
                    error.hint = "fetch the file again"
                    bad.append((row.file, row.line, error, row.values))
        return documents, bad


def _cell(name: str, value: object) -> str:
    """Returns a field of the table: a text, a number, or a list of texts."""
    if isinstance(value, list):
        return "; ".join(check_text(item, f"{name}[{place}]", empty_ok=True) for place, item in enumerate(value))
    if isinstance(value, int | float) and not isinstance(value, bool):  # a year, a rating
        return str(value)
    return check_text(value, name, empty_ok=True)
