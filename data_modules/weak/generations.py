"""Reads models' replies to Wizard of Wikipedia's test turns: `generations/*.json` beside the dialogues.

Layout: {"generation": [{"dialogue": [[reply, ...], ...]}, ...]}, one entry for every `dialog_idx`, one list for every
wizard turn. Each file holds the replies of one model.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_modules.reading.rows import ReadReport, check_text
from faithkit.errors import UserError
from faithkit.records import Example

MAX_WORDS = 60  # longer replies ramble: they would teach length rather than faithfulness


def generation_files(folder: Path) -> list[Path]:
    """Finds the files beside the dialogues, if there are any."""
    return sorted((folder / "generations").glob("*.json"))


def read_generations(folder: Path, turns: Sequence[Example], report: ReadReport) -> Iterator[tuple[str, Example, str]]:
    """Yields (model, turn, reply) for every reply to one of the turns.

    Dialogues are matched by their number, and taken only where both sides have as many turns.
    """
    dialogues: dict[str, list[Example]] = {}
    for turn in turns:
        dialogues.setdefault(turn.group, []).append(turn)
    for file in generation_files(folder):
        replies = _replies(file)
        for number, answered in dialogues.items():
            found = replies.get(number)
            if found is None or len(found) != len(answered):
                report.count("generations: dialogues that do not match")
                continue
            for turn, reply in zip(answered, found, strict=True):
                if not reply.strip():
                    report.count("generations: empty")
                elif len(reply.split()) >= MAX_WORDS:
                    report.count("generations: too long")
                else:
                    yield file.stem, turn, reply.strip()


def _replies(file: Path) -> dict[str, list[str]]:
    """Reads the first reply to each turn, by the dialogue's number."""
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8-sig"))["generation"]
        found = {str(number): [turn[0] for turn in dialogue["dialogue"]] for number, dialogue in enumerate(content)}
        for number, replies in found.items():
            for reply in replies:
                check_text(reply, f"reply in dialogue {number}", empty_ok=True)
        return found
    except (OSError, ValueError, RecursionError, KeyError, TypeError, IndexError) as error:
        hint = 'give {"generation": [{"dialogue": [[reply, ...], ...]}]}, or move the file away'
        raise UserError(f"not a file of generations: {error!r}", place=str(file), hint=hint) from error
