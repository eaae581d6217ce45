"""Layouts that dialogue datasets share: one turn per row, and transcripts with judgements.

Turns cut out of official conversations are distributed as {conv, history, knowledge, response}, history a list of
texts. HalluDial and HaluEval write dialogues as one text, `[Human]: ... [Assistant]: ...`, and judgements that begin
with Yes or No.
"""

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_modules.reading.dataset import Records, Source
from data_modules.reading.fields import SEEKER, SPEAKER_MARKS, WIZARD, YES_NO, alternate, other_fields
from data_modules.reading.files import File, find_files
from data_modules.reading.rows import BadRow, ReadReport, Row, read_rows
from faithkit.errors import shorten
from faithkit.records import Example, Turn

FIELDS = ("conv", "history", "knowledge", "response")
OPENS = "dropped: opens the conversation"
EMPTY = "dropped: empty message"


@dataclass(frozen=True, kw_only=True)
class ConversationSource(Source):
    """Official conversations, or turns that were cut out of them: `official_files` has the turns' layout first.

    A path to the official folder of conversations reads that folder, even if there are turns next to it.
    """

    @abstractmethod
    def companions(self, file: Path) -> list[Path]:
        """Returns the further files that the records of a split depend on, by the split's first file."""

    @abstractmethod
    def conversations(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        """Yields the records of a row of official conversations."""

    def files(self) -> Mapping[str, Sequence[File]]:
        """Returns the conversations or turns of each split, followed by their companions."""
        return {split: [*files, *self.companions(files[0])] for split, files in self._found().items()}

    def _found(self) -> dict[str, list[Path]]:
        raw, root = self.official_files[-1], Path(self.path).expanduser()
        if root.name == Path(next(iter(raw.values()))[0]).parts[0] and root.is_dir():
            return find_files(str(root.parent), raw, address=self.address)
        return find_files(self.path, *self.official_files, address=self.address)

    def read_split(self, split: str, report: ReadReport) -> Records:
        """Yields the records of a split, file by file."""
        for file in self._found()[split]:
            for row in read_rows(file, report):
                for example in self.read_row(row, split, report):
                    yield example, None

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        if "conv" in row.values:
            report.count("layout: turns")
            row.layout({"turns": FIELDS})
            yield Example(
                id=row.default_id,
                source=self.name,
                split=split,
                group=row.text("conv"),
                knowledge=row.text("knowledge"),
                history=alternate(row.texts("history")),
                response=row.text("response"),
                reference=row.text("response"),
                meta=other_fields(row.values, FIELDS),
            )
        else:
            yield from self.conversations(row, split, report)


SPEAKERS = {f"{mark}:": speaker for speaker, mark in SPEAKER_MARKS.items()}
_SPEAKER_MARK = re.compile(f"({'|'.join(map(re.escape, SPEAKERS))})")
# A whole word: None, Nobel and Yesterday are no verdicts, nor is No-one's.
_VERDICT = re.compile(r"\s*(yes|no)(?![\w'’-])", re.IGNORECASE)


def read_transcript(row: Row, name: str) -> tuple[Turn, ...]:
    """Returns the turns of the text under `name`, oldest first; none of an empty text.

    Raises:
        BadRow: There is text before the first speaker's mark.
    """
    first, *rest = _SPEAKER_MARK.split(row.text(name, empty_ok=True))
    if first.strip():
        marks = " or ".join(SPEAKERS)
        raise BadRow(f"field {name!r} must begin with {marks}, got {shorten(first)}")
    return tuple(
        Turn(speaker=SPEAKERS[mark], text=text.strip()) for mark, text in zip(rest[::2], rest[1::2], strict=True)
    )


def write_history(turns: Sequence[Turn], between: str = "\n") -> str:
    """Writes the turns of a conversation as HalluDial does, a line each or with another text between them."""
    speakers = (WIZARD if turn.speaker == WIZARD else SEEKER for turn in turns)  # other speakers are people
    return between.join(f"{SPEAKER_MARKS[who]}: {turn.text.strip()}" for who, turn in zip(speakers, turns, strict=True))


def verdict_of(judgement: str) -> str | None:
    """Returns the label that a judgement begins with: Yes is hallucinated, No is faithful, anything else None."""
    found = _VERDICT.match(judgement)
    return YES_NO[found[1].lower()] if found else None
