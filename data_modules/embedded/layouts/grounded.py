"""Dialogues about documents, in the layouts of CMU-DoG and Topical-Chat."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_modules.embedded.exchange import Exchange
from data_modules.embedded.layouts.common import NumRows, dialogues, sizes, write_json_object

CMU_SPLITS = {"train": "train", "validation": "valid", "test": "test"}
TOPICAL_SPLITS = {
    "train": ("train",),
    "validation": ("valid_freq", "valid_rare"),
    "test": ("test_freq", "test_rare"),
}
NUM_SECTIONS = 4
_RARE_START = 12_000_000  # the rare splits come from another part of the corpus
_BOTH_EVERY = 4  # in one conversation of this many both people saw the document
_PERSONAL_EVERY = 9  # one turn in this many names no section


def write_cmu_dog(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes CMU-DoG; `num_rows` counts exchanges. Each conversation has a document of its own in WikiData."""
    document_number = 0
    for split, size in sizes(num_rows).items():
        for number, exchanges in dialogues(split, size, seed):
            name = hashlib.sha1(f"{seed}:{split}:{number}".encode()).hexdigest()
            document = _document(exchanges, document_number)
            write_json_object(folder / "WikiData" / f"{split}_{number}.json", document)
            conversation = _film_talk(exchanges, number, document_number)
            write_json_object(folder / "Conversations" / CMU_SPLITS[split] / f"{name}.json", conversation)
            document_number += 1
    return folder


def _section(place: int) -> int:
    return min(place, NUM_SECTIONS - 1)


def _document(exchanges: list[Exchange], number: int) -> dict[str, Any]:
    texts = ["" for _ in range(NUM_SECTIONS)]
    for place, exchange in enumerate(exchanges):
        texts[_section(place)] = " ".join([texts[_section(place)], *exchange.sentences]).strip()
    first = {
        "cast": [],
        "critical_response": [],
        "director": "",
        "genre": exchanges[0].domain,
        "introduction": texts[0],
        "movieName": exchanges[0].topic,
        "rating": [],
        "year": "",
    }
    return {"0": first, **{str(i): texts[i] for i in range(1, NUM_SECTIONS)}, "wikiDocumentIdx": number}


def _film_talk(exchanges: list[Exchange], number: int, document: int) -> dict[str, Any]:
    messages = []
    for place, exchange in enumerate(exchanges):
        texts = {"user1": exchange.history[-1].text, "user2": exchange.shown_reply(generic=False).text}
        messages += [{"docIdx": _section(place), "text": text, "uid": user} for user, text in texts.items()]
    return {
        "history": messages,
        "rating": number % 3 + 1,
        "status": 1,
        "whoSawDoc": ["user1", "user2"] if number % _BOTH_EVERY == 0 else ["user2"],
        "wikiDocumentIdx": document,
    }


def write_topical_chat(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes Topical-Chat: all five files with their reading sets; `num_rows` counts exchanges."""
    for split, size in sizes(num_rows).items():
        for name, start in zip(TOPICAL_SPLITS[split], (0, _RARE_START), strict=False):
            talks = dict(_talks(split, size, seed, start))
            write_json_object(folder / "conversations" / f"{name}.json", {k: talk for k, (talk, _) in talks.items()})
            built = folder / "reading_sets" / "post-build" / f"{name}.json"
            write_json_object(built, {k: sets for k, (_, sets) in talks.items()})
    return folder


def _talks(split: str, size: int, seed: int, start: int) -> Iterator[tuple[str, tuple[dict[str, Any], dict[str, Any]]]]:
    for number, exchanges in dialogues(split, size, seed, start):
        name = f"t_{hashlib.sha1(f'{seed}:{split}:{number}'.encode()).hexdigest()[:12]}"
        turns = []
        for place, exchange in enumerate(exchanges):
            sections = [f"FS{place % 3 + 1}", "Personal Knowledge"]
            if (number + place) % _PERSONAL_EVERY == 0:
                sections = sections[1:]
            turns.append(_turn("agent_1", exchange.history[-1].text, ["Personal Knowledge"]))
            turns.append(_turn("agent_2", exchange.shown_reply(generic=False).text, sections))
        ratings = {"agent_1": "Good", "agent_2": "Excellent"}
        talk = {"article_url": None, "config": "C", "content": turns, "conversation_rating": ratings}
        yield name, (talk, _reading_set(exchanges))


def _turn(agent: str, message: str, sections: list[str]) -> dict[str, Any]:
    return {
        "message": message,
        "agent": agent,
        "sentiment": "Neutral",
        "knowledge_source": sections,
        "turn_rating": "Good",
    }


def _reading_set(exchanges: list[Exchange]) -> dict[str, Any]:
    sections = {}
    for i in range(3):
        about = exchanges[i::3]
        sections[f"FS{i + 1}"] = {
            "entity": exchanges[0].topic,
            "shortened_wiki_lead_section": " ".join(about[0].sentences) if about else "",
            "fun_facts": [" ".join(exchange.sentences) for exchange in about[1:]],
        }
    return {"config": "C", "agent_1": sections, "agent_2": sections, "article": {"url": None}}
