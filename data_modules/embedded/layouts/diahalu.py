"""DiaHalu: dialogues of four domains, in some of which one round is hallucinated.

The dialogues have no knowledge beside them, so what a hallucination contradicts stands in the dialogue: A tells what it
has read, and the sums of a reasoning dialogue can be done again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from data_modules.embedded.exchange import Exchange
from data_modules.embedded.layouts.common import NumRows, dialogues, sizes, write_jsonl

DOMAINS = ("World Knowledge", "Task-oriented Style", "Chit-Chat", "Reasoning")
# The type of a wrong reply by its kind: beside the world's facts it is non-factual, within a talk incoherent.
TYPES = {"addition": "Overreliance", "subjective": "Irrelevance"}
MODELS = ("ChatGPT3.5", "GPT4")
_NUM_ROUNDS = 6  # the fewest of a dialogue
_HALLUCINATED = (0, 2, 5, 7)  # of every nine dialogues of a domain
_TURNS = 12  # more than a dialogue's turns, at most


def write_diahalu(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes one file with the dialogues of all splits, since there are no splits; `num_rows` counts dialogues."""
    rows = (row for split, size in sizes(num_rows).items() for row in _rows(split, size, seed))
    write_jsonl(folder / "DiaHalu.jsonl", ({"ID": number, **row} for number, row in enumerate(rows, start=1)))
    return folder


def _rows(split: str, size: int, seed: int) -> Iterator[dict[str, Any]]:
    talks = _talks(split, size, seed)
    for number in range(size):
        place, domain = number // len(DOMAINS), DOMAINS[number % len(DOMAINS)]
        is_wrong = place % 9 in _HALLUCINATED
        if domain == "Reasoning":
            rounds, places = _sums(Random(f"sums:{seed}:{split}:{number}"), is_wrong)
        else:
            rounds, places = _talk(next(talks), domain, place if is_wrong else None)
        yield {
            "text": "\n".join(f"A{i}: {a}\nB{i}: {b}" for i, (a, b) in enumerate(rounds, start=1)),
            "label": int(is_wrong),
            "index": json.dumps([[number, name] for number, name, _ in places], separators=(",", ":")),
            "domain": domain,
            "explaination": json.dumps([why for _, _, why in places]),
            "source": "embedded",
            "Which LLM": MODELS[place % len(MODELS)],
        }


def _talks(split: str, size: int, seed: int) -> Iterator[list[Exchange]]:
    """Talks of `_NUM_ROUNDS` and more turns: dialogues are joined until they have as many."""
    joined: list[Exchange] = []
    for _, exchanges in dialogues(split, (size + 1) * _TURNS, seed):
        joined += exchanges
        if len(joined) >= _NUM_ROUNDS:
            yield joined
            joined = []


def _talk(
    exchanges: list[Exchange], domain: str, place: int | None
) -> tuple[list[tuple[str, str]], list[tuple[int, str, str]]]:
    wrong = None if place is None else place % len(exchanges)
    rounds, places = [], []
    for number, exchange in enumerate(exchanges):
        reply = exchange.hallucinated if number == wrong else exchange.faithful
        rounds.append((f"I have read this: {' '.join(exchange.sentences)} {exchange.history[-1].text}", reply.text))
        if number == wrong and place is not None:
            conflict = ("non-factual", "Non-Factual") if domain == DOMAINS[0] else ("Incoherence", "incoherence")
            name = TYPES.get(reply.kind, conflict[place % 2])  # spelt in several ways, as the files do
            places.append((number + 1, name, reply.target.partition(", ")[2]))
    return rounds, places


def _sums(random: Random, is_wrong: bool) -> tuple[list[tuple[str, str]], list[tuple[int, str, str]]]:
    """A problem solved step by step; the steps after a wrong one go on from it."""
    per, boxes = random.randint(3, 12), random.randint(3, 9)
    total = per * boxes
    rounds = [(f"There are {boxes} boxes with {per} apples each. How many are there?", f"{boxes} x {per} = {total}.")]
    wrong, places = (random.randint(2, _NUM_ROUNDS) if is_wrong else 0), []
    for number in range(2, _NUM_ROUNDS + 1):
        added = random.randint(2, 30)
        right = total + added
        said = right + random.choice([-10, -1, 1, 10]) if number == wrong else right
        rounds.append((f"Now {added} more are put in. How many are there?", f"{total} + {added} = {said} apples."))
        if number == wrong:
            places.append((number, "Reasoning Error", f"{total} + {added} = {right}"))
        total = said
    return rounds, places
