"""Reads and applies people's edits of A's turns (DiaHalu, section 4.2): A should sound human before B is judged.

`turns_to_edit.csv` has a line for each turn of A, with the turn before it and signs that a model wrote it. A person
writes a better turn into the column `edit`. The next run regenerates the dialogue from there on; earlier turns and all
other dialogues stay unchanged.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from construction.chain.steps import KEY, Row, is_failed
from construction.dialogues.turns import turn_name
from construction.sheet import normalize_spaces, read_sheet, write_sheet
from faithkit.errors import UserError, shorten

COLUMNS = ("dialogue", "round", "domain", "before", "text", "signs", "edit")
FAILED = "the dialogue failed behind it"
LONG = 40  # words that people rarely type at once
# Why an edit is not applied.
NO_DIALOGUE, NO_TURN, OTHER_TEXT, BEHIND = (
    "there is no such dialogue",
    "the dialogue has no such turn",
    "the turn has another text now",
    "an earlier turn of the dialogue is edited: this one is regenerated",
)
_ASSISTANT = re.compile(
    r"how (?:can|may) i (?:help|assist)|\bas an? (?:ai|assistant|language model)\b|happy to (?:help|assist)|"
    r"\bfeel free to\b|let me know if you|anything else (?:i can|you)|^(?:certainly|of course|sure)\b",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"\*\*|^#|(?:^|\s)(?:[-*•]|\d+[.)])\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A person's text that replaces a turn of A.

    Args:
        dialogue: The key of its row.
        round: From 1.
        before: The turn that it replaces.
    """

    dialogue: str
    round: int
    before: str
    text: str

    @property
    def place(self) -> int:
        """Gives the place of the turn."""
        return 2 * (self.round - 1)

    def to_dict(self) -> dict[str, Any]:
        """Gives the fields."""
        return asdict(self)


def write_turns(path: Path, rows: Iterable[Row], domains: Sequence[str]) -> int:
    """Writes A's turns of the dialogues of some domains, and counts them."""
    return write_sheet(path, COLUMNS, (line for row in rows if row.get("domain") in domains for line in _lines(row)))


def _lines(row: Row) -> Iterator[dict[str, object]]:
    turns: list[str] = row["turns"]
    failed = [f"{FAILED}: {row['failed']}"] if "failed" in row else []
    for place in range(0, len(turns), 2):
        found = signs(turns[place], cut=turn_name(place) in row.get("cut", ()))
        yield {
            "dialogue": row[KEY],
            "round": place // 2 + 1,
            "domain": row["domain"],
            "before": turns[place - 1] if place else row["for_a"],
            "text": turns[place],
            "signs": ", ".join([*found, *failed] if place == len(turns) - 1 else found),
        }


def signs(text: str, *, cut: bool = False) -> list[str]:
    """Lists why a turn of A may not sound human."""
    found = {
        "speaks as the assistant": bool(_ASSISTANT.search(text)),
        "long": len(text.split()) > LONG,
        "list or markup": bool(_MARKUP.search(text)),
        "further turns were cut off": cut,
    }
    return [name for name, is_so in found.items() if is_so]


def read_edits(path: Path) -> list[Edit]:
    """Reads people's edits; an edit that is empty or equals the turn does not count.

    Raises:
        UserError: A round is no number, or a turn is edited twice.
    """
    found: dict[tuple[str, int], Edit] = {}
    for place, cells in read_sheet(path, ("dialogue", "round", "text", "edit")):
        text = normalize_spaces(cells["edit"])
        if not text or text == normalize_spaces(cells["text"]):
            continue
        number = cells["round"].strip()
        if not (number.isascii() and number.isdigit() and int(number)):
            problem = f"round is {shorten(cells['round'])}"
            raise UserError(problem, place=place, hint="leave dialogue and round as they were written")
        edit = Edit(dialogue=cells["dialogue"], round=int(number), before=normalize_spaces(cells["text"]), text=text)
        if (edit.dialogue, edit.round) in found:
            problem = f"round {edit.round} of {shorten(edit.dialogue)} is edited twice"
            raise UserError(problem, place=place, hint="keep one of the edits")
        found[edit.dialogue, edit.round] = edit
    return list(found.values())


def apply_edits(edits: Sequence[Edit], rows: Iterable[Row]) -> tuple[list[Row], dict[str, list[Edit]]]:
    """Cuts each edited dialogue behind its first edited turn.

    Returns:
        The cut dialogues, and the edits that do not apply, by reason.
    """
    waiting: dict[str, list[Edit]] = {}
    for edit in sorted(edits, key=lambda edit: edit.round):
        waiting.setdefault(edit.dialogue, []).append(edit)
    cut: list[Row] = []
    left_out: dict[str, list[Edit]] = {}
    for row in rows:
        applied = None
        for edit in waiting.pop(row[KEY], ()):
            if (why := BEHIND if applied else _obstacle(edit, row)) is not None:
                left_out.setdefault(why, []).append(edit)
                continue
            applied = edit
        if applied is not None:
            cut.append(_cut(row, applied))
    for unknown in waiting.values():
        left_out.setdefault(NO_DIALOGUE, []).extend(unknown)
    return cut, left_out


def _obstacle(edit: Edit, row: Row) -> str | None:
    turns: Sequence[str] = () if is_failed(row) else row["turns"]
    if edit.place >= len(turns):
        return NO_TURN
    return None if normalize_spaces(turns[edit.place]) == edit.before else OTHER_TEXT


def _cut(row: Row, edit: Edit) -> Row:
    turns = [*row["turns"][: edit.place], edit.text]
    names = {turn_name(place) for place in range(edit.place)}
    marks: Mapping[str, list[str]] = {
        name: [turn for turn in row[name] if turn in names] for name in ("cut", "refused", "edited") if name in row
    }
    edited = [*marks.get("edited", []), turn_name(edit.place)]
    rest = {name: value for name, value in row.items() if name not in ("ended", "failed", *marks)}
    return {**rest, **{name: value for name, value in marks.items() if value}, "edited": edited, "turns": turns}
