"""FaithDial's files, and Wizard of Wikipedia in the same layout."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_modules.embedded.exchange import Exchange, Reply
from data_modules.embedded.layouts.common import NumRows, dialogues, sizes, write_json

FILES = {"train": "train.json", "validation": "valid.json", "test": "test.json"}
WOW_FILES = {"train": "wow_train.json", "validation": "wow_valid.json", "test": "wow_test.json"}
GENERIC_EVERY = 15  # one turn in this many had a generic reply before it was edited


def write_faithdial(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes FaithDial: responses are faithful; the tags of edited ones are about their `original_response`."""
    for split, size in sizes(num_rows).items():
        write_json(folder / FILES[split], _dialogues(split, size, seed, _edited))
    return folder


def write_wow(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes Wizard of Wikipedia in FaithDial's layout: its own responses, without tags."""
    for split, size in sizes(num_rows).items():
        write_json(folder / WOW_FILES[split], _dialogues(split, size, seed, _original))
    return folder


def _dialogues(split: str, size: int, seed: int, utterance: Any) -> Iterator[dict[str, Any]]:
    for index, (number, turns) in enumerate(dialogues(split, size, seed)):
        utterances = [utterance(turn, number * 7 + place) for place, turn in enumerate(turns)]
        yield {"dialog_idx": index, "utterances": utterances}


def _edited(exchange: Exchange, position: int) -> dict[str, Any]:
    first = _first_reply(exchange, position)
    edited = first is not exchange.faithful
    return {
        "history": [turn.text for turn in exchange.history],
        "knowledge": " ".join(exchange.sentences),
        "response": exchange.faithful.text,
        "original_response": first.text if edited else None,
        "BEGIN": list(first.tags),
        "VRM": list(first.vrm),
    }


def _first_reply(exchange: Exchange, position: int) -> Reply:
    """Returns the reply before it was edited, as Wizard of Wikipedia has it."""
    return exchange.shown_reply(generic=position % GENERIC_EVERY == 0)


def _original(exchange: Exchange, position: int) -> dict[str, Any]:
    return {
        "history": [turn.text for turn in exchange.history],
        "knowledge": " ".join(exchange.sentences),
        "response": _first_reply(exchange, position).text,
        "original_response": None,
        "BEGIN": None,
        "VRM": None,
    }
