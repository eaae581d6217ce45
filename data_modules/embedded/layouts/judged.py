"""HalluDial: responses with a judgement that begins with Yes or No."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_modules.embedded.exchange import Exchange, Reply
from data_modules.embedded.layouts.common import NumRows, dialogues, sizes, write_json
from data_modules.reading.fields import SPEAKER_MARKS

_INDUCED_SHARE = 3 / 8  # of all rows, as in the release
_INDUCED_START = 12_000_000  # other dialogues than those of the spontaneous scenario


def transcript(exchange: Exchange) -> str:
    """Writes the history of a turn as one text."""
    return " ".join(f"{SPEAKER_MARKS[turn.speaker]}: {turn.text}" for turn in exchange.history)


def write_halludial(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes HalluDial: a train and a test file for each scenario, which share `num_rows`."""
    first = 0  # dialogues are numbered through all files
    for split, size in sizes(num_rows, ("train", "test")).items():
        induced = max(2, round(size * _INDUCED_SHARE)) if size > 2 else 0
        for scenario, wanted in (("spontaneous", size - induced), ("induced", induced)):
            if wanted:
                rows = list(_rows(scenario, split, wanted, seed, first))
                write_json(folder / scenario / f"{scenario}_{split}.json", rows)
                first = rows[-1]["dialogue_id"] + 1
    return folder


def _rows(scenario: str, split: str, size: int, seed: int, first: int) -> Iterator[dict[str, Any]]:
    start = _INDUCED_START if scenario == "induced" else 0
    written = 0
    for place, (number, exchanges) in enumerate(dialogues(split, size, seed, start)):
        for turn, exchange in enumerate(exchanges):
            for reply in _replies(scenario, exchange, number + turn):
                if written == size:
                    return
                written += 1
                yield {
                    "dialogue_id": first + place,
                    "knowledge": " ".join(exchange.sentences),
                    "dialogue_history": transcript(exchange),
                    "turn": turn,
                    "response": reply.text,
                    "target": _target(scenario, reply),
                }


def _replies(scenario: str, exchange: Exchange, position: int) -> list[Reply]:
    """One natural response, a quarter of them hallucinated; or the induced one and the reference."""
    if scenario == "induced":
        return [exchange.hallucinated, exchange.faithful]
    return [exchange.hallucinated if exchange.hallucinated_first and position % 2 else exchange.faithful]


def _target(scenario: str, reply: Reply) -> str:
    """The judgement as a sentence after its verdict; an induced row's reference was not judged, but known to be right.

    The paper's targets have this form.
    """
    verdict, _, reason = reply.target.partition(", ")
    if scenario == "induced" and verdict == "No":
        return "No."
    return f"{verdict}. {reason[0].upper()}{reason[1:]}"
