"""Dialogues as one text, `[Human]: ... [Assistant]: ...`, and judgements that begin with Yes or No.

HalluDial and HaluEval share both forms.
"""

import re
from collections.abc import Sequence

from data_modules.reading.fields import SEEKER, SPEAKER_MARKS, WIZARD, YES_NO
from data_modules.reading.rows import BadRow, Row
from faithkit.errors import shorten
from faithkit.records import Turn

SPEAKERS = {f"{mark}:": speaker for speaker, mark in SPEAKER_MARKS.items()}
_MARK = re.compile(f"({'|'.join(map(re.escape, SPEAKERS))})")
# A whole word: None, Nobel and Yesterday are no verdicts, nor is No-one's.
_VERDICT = re.compile(r"\s*(yes|no)(?![\w'’-])", re.IGNORECASE)


def read_transcript(row: Row, name: str) -> tuple[Turn, ...]:
    """The turns of the text under `name`, oldest first; none of an empty text.

    Raises:
        BadRow: Something is said before the first speaker is named.
    """
    first, *rest = _MARK.split(row.text(name, empty_ok=True))
    if first.strip():
        marks = " or ".join(SPEAKERS)
        raise BadRow(f"field {name!r} must begin with {marks}, got {shorten(first)}")
    return tuple(
        Turn(speaker=SPEAKERS[mark], text=said.strip()) for mark, said in zip(rest[::2], rest[1::2], strict=True)
    )


def write_history(turns: Sequence[Turn], between: str = "\n") -> str:
    """Writes the turns of a conversation as HalluDial does, a line each or with another text between them."""
    speakers = (WIZARD if turn.speaker == WIZARD else SEEKER for turn in turns)  # other names are people's
    return between.join(f"{SPEAKER_MARKS[who]}: {turn.text.strip()}" for who, turn in zip(speakers, turns, strict=True))


def verdict_of(judgement: str) -> str | None:
    """The label that a judgement begins with: Yes is hallucinated, No is faithful, anything else None."""
    found = _VERDICT.match(judgement)
    return YES_NO[found[1].lower()] if found else None
