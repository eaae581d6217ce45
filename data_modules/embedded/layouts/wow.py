"""Wizard of Wikipedia's own files, as ParlAI publishes them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_modules.embedded.exchange import Exchange
from data_modules.embedded.layouts.common import NumRows, dialogues, sizes, write_json

FILES = {
    "train": ("train.json",),
    "validation": ("valid_random_split.json", "valid_topic_split.json"),
    "test": ("test_random_split.json", "test_topic_split.json"),
}
NOTHING = "no_passages_used"
_TOPIC_START = 12_000_000  # the topic splits come from another part of the corpus than the random ones
_UNUSED_EVERY = 11  # one wizard turn in this many used no passage


def write_wow_parlai(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes all five files; `num_rows` counts wizard turns."""
    for split, size in sizes(num_rows).items():
        for file, start in zip(FILES[split], (0, _TOPIC_START), strict=False):
            write_json(folder / file, _conversations(split, size, seed, start))
    return folder


def _conversations(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    for number, exchanges in dialogues(split, size, seed, start):
        topic = _title(exchanges[0].topic)
        # The wizard opens every third conversation: its first line then answers no one.
        wizard_first = number % 3 == 0
        names = ("1_Apprentice", "0_Wizard") if wizard_first else ("0_Apprentice", "1_Wizard")
        turns: list[dict[str, Any]] = []
        passage: list[str] = []
        for place, exchange in enumerate(exchanges):
            pool = [_sentence(other) for other in exchanges[place : place + 3]]
            if not (wizard_first and place == 0):
                turns.append(_apprentice(names[0], exchange, topic, pool))
            turns.append(_wizard(names[1], exchange, topic, pool, number * 5 + place, place))
            passage.append(_sentence(exchange))
        yield {
            "chosen_topic": topic,
            "persona": f"i am curious about {exchanges[0].topic}.",
            "wizard_eval": number % 5 + 1,
            "dialog": turns,
            "chosen_topic_passage": passage,
        }


def _title(topic: str) -> str:
    return topic.removeprefix("the ")


def _sentence(exchange: Exchange) -> str:
    return " ".join(exchange.sentences)


def _apprentice(speaker: str, exchange: Exchange, topic: str, pool: list[str]) -> dict[str, Any]:
    return {
        "speaker": speaker,
        "text": exchange.history[-1].text,
        "retrieved_passages": [{topic: pool}],
        "retrieved_topics": [topic],
    }


def _wizard(speaker: str, exchange: Exchange, topic: str, pool: list[str], roll: int, place: int) -> dict[str, Any]:
    unused = roll % _UNUSED_EVERY == 0
    reply = exchange.shown_reply(generic=unused)
    key = topic.replace(" ", "_")
    if unused:  # the published files have both forms
        sentence = passage = {NOTHING: NOTHING} if roll % 2 else {}
    else:
        sentence = {f"self_{key}_{place}": _sentence(exchange)}
        passage = {f"self_0_{key}": topic}
    return {
        "speaker": speaker,
        "text": reply.text,
        "checked_sentence": sentence,
        "checked_passage": passage,
        "retrieved_passages": [{topic: pool}],
        "retrieved_topics": [topic],
    }
