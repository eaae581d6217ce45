"""DiaHalu's rows as rounds of turns and places of hallucinations; faults of spelling and form are mended and counted.

The files were annotated by hand: types are spelt in several ways, some explanations are no JSON, and turns may be
missing or stand in another order than their numbers.
"""

import json
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from data_modules.reading.rows import BadRow, ReadReport, Row
from faithkit.errors import shorten

TYPES = ("non-factual", "incoherence", "irrelevance", "overreliance", "reasoning error")
EXPLANATIONS = ("explaination", "explanation")  # the files' own spelling first
_TURN = re.compile(r"^[ \t]*([AB])[ \t]*(\d{1,4})[ \t]*[:：]", re.MULTILINE)
_ITEM = re.compile(r"[\"']?\s*[AB]?\s*(\d{1,4})\s*[\"']?\s*,\s*[\"']?\s*([A-Za-z][A-Za-z _-]*)")
_NUMBER = re.compile(r"\s*[AB]?\s*(\d{1,4})\s*")
_LETTERS = re.compile(r"[^a-z]")
_BY_LETTERS = {_LETTERS.sub("", name): name for name in TYPES}


class Said(NamedTuple):
    """One turn: who said it (A or B), in which round, and what."""

    who: str
    round: int
    text: str


class Place(NamedTuple):
    """A round with a hallucination of a type; `spelt` is the type as the file has it."""

    round: int
    type: str
    spelt: str


def read_turns(row: Row, report: ReadReport) -> list[Said]:
    """The turns of a dialogue in the order of its text."""
    text = row.text("text")
    marks = list(_TURN.finditer(text))
    if not marks or text[: marks[0].start()].strip():
        raise BadRow(f"field 'text' must begin with a turn, as A1: ..., got {shorten(text)}")
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    turns = [Said(mark[1], int(mark[2]), text[mark.end() : end].strip()) for mark, end in zip(marks, ends, strict=True)]
    wanted = [("AB"[place % 2], place // 2 + 1) for place in range(len(turns))]
    if [(turn.who, turn.round) for turn in turns] != wanted:
        report.count("turns missing, repeated or out of order: as they stand")
    return turns


def read_places(row: Row, turns: Sequence[Said], report: ReadReport) -> list[Place]:
    """The places that `index` names, by round."""
    rounds = {turn.round for turn in turns}
    places = []
    for number, spelt in _items(row, report):
        name = _type_of(spelt, report)
        if number in rounds:
            places.append(Place(number, name, spelt))
        else:
            report.count("mended: a place without such a turn, left out")
    return sorted(places, key=lambda place: place.round)


def _items(row: Row, report: ReadReport) -> Iterator[tuple[int, str]]:
    value: Any = row.values.get("index")
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else []
        except (ValueError, RecursionError):
            yield from _items_of_text(value, report)
            return
    if value is None:
        return
    if not isinstance(value, list):
        raise _bad_index(row.values.get("index"))
    if len(value) == 2 and not isinstance(value[0], list):
        report.count("mended: an index of one place, not in a list")
        value = [value]
    for item in value:
        if not (isinstance(item, list) and len(item) == 2 and isinstance(item[1], str)):
            raise _bad_index(row.values.get("index"))
        yield _round(item[0], report), item[1]


def _items_of_text(text: str, report: ReadReport) -> list[tuple[int, str]]:
    found = [(int(item[1]), item[2].strip()) for item in _ITEM.finditer(text)]
    if not found:
        raise _bad_index(text)
    report.count("mended: an index that is no JSON")
    return found


def _round(value: object, report: ReadReport) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and (found := _NUMBER.fullmatch(value)):
        report.count("mended: a turn's number given as text")
        return int(found[1])
    raise _bad_index(value)


def _bad_index(value: object) -> BadRow:
    return BadRow(f"field 'index' must be a list of [turn, type], got {shorten(value)}")


def _type_of(spelt: str, report: ReadReport) -> str:
    """The type that a spelling stands for: by its letters, else by the nearest one."""
    letters = _LETTERS.sub("", spelt.lower())
    if letters not in _BY_LETTERS:
        near = get_close_matches(letters, _BY_LETTERS, 1, cutoff=0.75)
        if not near:
            raise BadRow(f"field 'index' has the type {shorten(spelt)}; known: {', '.join(TYPES)}")
        report.count("mended: a misspelt type")
        letters = near[0]
    elif spelt.lower() != _BY_LETTERS[letters]:
        report.count("mended: a misspelt type")
    return _BY_LETTERS[letters]


def read_explanations(row: Row, report: ReadReport) -> list[str]:
    """The annotators' explanations, as a rule one for each place."""
    name = next((name for name in EXPLANATIONS if row.values.get(name) is not None), EXPLANATIONS[0])
    value: Any = row.values.get(name)
    if isinstance(value, str):
        text = row.text(name, empty_ok=True).strip()
        try:
            value = json.loads(text, strict=False) if text else []
        except (ValueError, RecursionError):
            report.count("mended: an explanation that is no JSON")
            value = [text.removeprefix('["').removesuffix('"]')]
    values = [] if value is None else value if isinstance(value, list) else [value]
    inner = row.inside({name: [text if isinstance(text, str) else str(text) for text in values]})
    return [text for text in inner.texts(name) if text.strip()]
