"""The embedded corpus in official layouts, with rows lengthened until a recipe's lengths are really reached."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from data_modules.datasets.ragtruth import render
from data_modules.embedded.layouts.common import write_json, write_jsonl
from data_modules.embedded.layouts.dialogue_corpora import FILES, write_faithdial
from data_modules.embedded.layouts.judged import write_halludial
from data_modules.embedded.layouts.spans import write_ragtruth
from data_modules.reading.fields import SPEAKER_MARKS
from tests.paper_smoke.vocabularies import corpus

Count = Callable[[str], int]  # the tokens of a text
TRIES = 40  # sentences that are too long before a text is as long as it can be
SPARE = 10  # tokens for special ones


class Lengths(NamedTuple):
    """Tokens that the parts of a dialogue's turn have at least; 0 leaves one as it is."""

    knowledge: int = 0
    history: int = 0
    response: int = 0


class Filler:
    """Sentences of the corpus, one after the other, without end."""

    def __init__(self, count: Count):
        self.count = count
        self._sentences = cycle(list(dict.fromkeys(corpus(60))))

    def beyond(self, text: str, wanted: int) -> str:
        """Adds sentences to a text until it has so many tokens or a few more."""
        while self.count(text) < wanted:
            text = f"{text} {next(self._sentences)}"
        return text

    def within(self, text: str, most: int) -> str:
        """Adds sentences to a text as long as it has at most so many tokens; the last ones are short."""
        refused = 0
        while refused < TRIES:
            longer = f"{text} {next(self._sentences)}".strip()
            if self.count(longer) <= most:
                text, refused = longer, 0
            else:
                refused += 1
        return text

    def turns(self, history: list[str], wanted: int) -> list[str]:
        """Puts turns before a history until it has so many tokens."""
        have = sum(map(self.count, history))
        before: list[str] = []
        while have < wanted or len(before) % 2:  # pairs of turns: whose turn it is stays
            before.append(next(self._sentences))
            have += self.count(before[-1])
        return [*before, *history]


def write_turns(folder: Path, num_rows: Mapping[str, int], count: Count, lengths: Lengths) -> Path:
    """Writes FaithDial's files with turns of these lengths."""
    write_faithdial(folder, num_rows)
    filler = Filler(count)
    for split in num_rows:
        dialogues = json.loads((folder / FILES[split]).read_text())
        for turn in (turn for dialogue in dialogues for turn in dialogue["utterances"]):
            turn["knowledge"] = filler.beyond(turn["knowledge"], lengths.knowledge)
            turn["history"] = filler.turns(turn["history"], lengths.history)
            for name in ("response", "original_response"):
                if turn[name]:
                    turn[name] = filler.beyond(turn[name], lengths.response)
        write_json(folder / FILES[split], dialogues)
    return folder


def write_judged(folder: Path, num_rows: Mapping[str, int], count: Count, history: int) -> Path:
    """Writes HalluDial's files with histories of so many tokens or a few more."""
    write_halludial(folder, dict(num_rows))
    filler = Filler(count)
    for path in sorted(folder.rglob("*.json")):
        rows = json.loads(path.read_text())
        for row in rows:
            before = zip(cycle(SPEAKER_MARKS.values()), filler.turns([], history), strict=False)
            row["dialogue_history"] = " ".join([*map(": ".join, before), row["dialogue_history"]])
        write_json(path, rows)
    return folder


def write_answers(folder: Path, num_rows: Mapping[str, int], count: Count, max_length: int) -> Path:
    """Writes RAGTruth's files with one answer a source, which fills a window of `max_length` tokens with its source."""
    write_ragtruth(folder, {split: 3 * number for split, number in num_rows.items()})  # three answers a source
    infos = {info["source_id"]: info for info in read_lines(folder / "source_info.jsonl")}
    kept: dict[str, Any] = {}
    for answer in read_lines(folder / "response.jsonl"):
        source_id = answer["source_id"]
        wants_marks = int(source_id) % 2 == 0  # of every second source one with marks, where there is one
        if source_id not in kept or bool(kept[source_id]["labels"]) != wants_marks:
            kept[source_id] = answer
    filler = Filler(count)
    for source_id, answer in kept.items():
        lengthen_source(infos[source_id], filler, max_length - count(answer["response"]))
    write_jsonl(folder / "source_info.jsonl", infos.values())
    write_jsonl(folder / "response.jsonl", kept.values())
    return folder


def lengthen_source(info: dict[str, Any], filler: Filler, most: int) -> None:
    """Lengthens a source so that with its question it has at most so many tokens."""
    shown = info["source_info"]
    if isinstance(shown, str):
        info["source_info"] = filler.within(shown, most - SPARE)
    elif "passages" in shown:
        shown["passages"] = filler.within(shown["passages"], most - SPARE - filler.count(shown["question"]))
    else:
        shown["reviews"] = filler.within("", most - SPARE - filler.count(render({**shown, "reviews": ""})))


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return map(json.loads, path.read_text().splitlines())
