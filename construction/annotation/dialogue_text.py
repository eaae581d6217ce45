"""Writes an example as one dialogue text in DiaHalu's form: rounds of `A1: ...` and `B1: ...`."""

import re

from data_modules.reading.fields import WIZARD
from faithkit.records import Example, Turn

_ROUNDS = re.compile(r"\s*A\s*\d+\s*[:：]")
_BREAKS = re.compile(r"\s*[\r\n]+\s*")


def rounds_text(example: Example) -> str:
    """Writes history and response as rounds; a response that is a dialogue in this form already stays as it is.

    In rounds A asks and B answers. Where the history leaves B to open, A's first turn is empty; several turns of one
    speaker in a row are one. A line break within a turn becomes a space, as it could look like a turn.
    """
    if not example.history and _ROUNDS.match(example.response):
        return example.response
    turns: list[tuple[str, list[str]]] = [("A", [])]
    for who, text in [*(_who(turn) for turn in example.history), ("B", example.response)]:
        if turns[-1][0] != who:
            turns.append((who, []))
        turns[-1][1].append(text)
    lines, number = [], 0
    for who, texts in turns:
        number += who == "A"
        lines.append(f"{who}{number}: {_BREAKS.sub(' ', ' '.join(texts)).strip()}")
    return "\n".join(lines)


def _who(turn: Turn) -> tuple[str, str]:
    return ("B" if turn.speaker == WIZARD else "A"), turn.text
