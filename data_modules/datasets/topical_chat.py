"""Topical-Chat (Gopalakrishnan et al. 2019): two people talk, each with a reading set, and name what a turn rests on.

Official files: https://github.com/alexa/Topical-Chat, `conversations/<split>.json` with the reading sets that its build
writes (`topical_chat_knowledge`). Turns that were cut out of them (`turn_rows`) are read too; the report counts which
layout it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data_modules.datasets.topical_chat_knowledge import ReadingSets, best_sentence, files_beside, read_reading_sets
from data_modules.datasets.turn_rows import EMPTY, OPENS, find_turns, is_turn, read_file, turn_example
from data_modules.datasets.turn_rows import FIELDS as TURN_FIELDS
from data_modules.reading.dataset import Records, Source
from data_modules.reading.fields import SEEKER, WIZARD
from data_modules.reading.files import File
from data_modules.reading.rows import BadRow, ReadReport, Row, check_text
from faithkit.errors import UserError
from faithkit.records import Example, Turn

ADDRESS = "https://github.com/alexa/Topical-Chat"
NAMES = {
    "train": "train",
    "validation": "valid_freq",
    "test": "test_freq",
    "validation_rare": "valid_rare",  # of things that training hardly speaks of
    "test_rare": "test_rare",
}
TURNS = {split: [f"{name}_turns.jsonl"] for split, name in NAMES.items()}
RAW = {split: [f"conversations/{name}.json"] for split, name in NAMES.items()}
LAYOUTS = {"turns": TURN_FIELDS, "conversations": ("content",)}


@dataclass(frozen=True, kw_only=True)
class TopicalChat(Source):
    """Turns with the sentence of the named sections that they share most words with, without labels.

    Both people's turns are read: each is the wizard of its own. Ids of official conversations are
    `<conversation>:<turn>`. A turn that names no section, or shares too few words with those it names, is dropped.

    Args:
        path: The official folder, its `conversations`, or a folder or file of turns.
        min_overlap: Token F1 that a turn must have with its sentence.
    """

    name: ClassVar[str] = "topical_chat"
    embedded_layout: ClassVar[str | None] = "topical_chat"
    min_overlap: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.min_overlap <= 1:
            raise UserError(f"min_overlap is {self.min_overlap}", hint="use a number from 0 to 1")

    def files(self) -> Mapping[str, Sequence[File]]:
        """The conversations of each split, followed by their reading sets: its records depend on both."""
        found = find_turns(self.path, TURNS, RAW, ADDRESS)
        return {split: [*files, *files_beside(files[0])] for split, files in found.items()}

    def read_split(self, split: str, report: ReadReport) -> Records:
        """The records of a split."""
        file = self.files()[split][0]
        assert isinstance(file, Path)
        yield from read_file(self, file, split, report)

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        if is_turn(row):
            report.count("layout: turns")
            yield turn_example(row, self.name, split)
            return
        if not all(isinstance(values, Mapping) and "content" in values for values in row.values.values()):
            row.layout(LAYOUTS)  # raises BadRow with the fields that were looked for
        sets = read_reading_sets(Path(row.file))
        report.count(f"layout: conversations, reading sets {sets.state}", len(row.values))
        for conversation, values in row.values.items():
            try:
                yield from list(self._conversation(row.inside(values), conversation, sets, split, report))
            except UserError:
                raise
            except ValueError as error:
                bad = BadRow.of(error).within(f"conversation {conversation[:80]}")
                report.reject(row.file, row.line, bad, values)

    def _conversation(
        self, row: Row, conversation: str, sets: ReadingSets, split: str, report: ReadReport
    ) -> Iterator[Example]:
        said: list[tuple[str, str]] = []
        check_text(conversation, "the conversation's id")
        for position, values in enumerate(row.items("content")):
            try:
                turn = row.inside(values)
                agent, text = turn.text("agent"), turn.text("message", empty_ok=True)
                sentences = sets.sentences(conversation, agent, turn.texts("knowledge_source"))
            except BadRow as error:
                raise error.within(f"turn {position}") from error  # the turns after it would lack their history
            if not text.strip():
                report.count(EMPTY)
                continue
            best = best_sentence(text, sentences)
            if not said:
                report.count(OPENS)
            elif best is None:
                report.count("dropped: no knowledge named")
            elif best.overlap < self.min_overlap:
                report.count("dropped: little in common with the knowledge named")
            else:
                yield Example(
                    id=f"{conversation}:{position}",
                    source=self.name,
                    split=split,
                    group=conversation,
                    knowledge=best.text,
                    history=tuple(Turn(speaker=WIZARD if a == agent else SEEKER, text=t) for a, t in said),
                    response=text,
                    reference=text,
                    meta={
                        "knowledge_source": best.section,
                        "candidates": len(sentences),
                        "overlap_f1": round(best.overlap, 3),
                    },
                )
            said.append((agent, text))
