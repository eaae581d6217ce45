"""Dialogue corpora in their official layouts, with the fields that their loaders read."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_modules.embedded.dialogue import Exchange, Reply
from data_modules.embedded.layouts.common import PART, NumRows, dialogues, sizes, write_json_object

GENERIC_EVERY = 15  # one turn in this many had a generic reply before it was edited


def faithdial_rows(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    """Makes FaithDial's dialogues: responses are faithful; tags of edited ones are about their `original_response`."""
    return _dialogues(_edited, split, size, seed, start)


def wow_rows(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    """Makes Wizard of Wikipedia's dialogues in FaithDial's layout: unedited responses, without tags."""
    return _dialogues(_original, split, size, seed, start)


def _dialogues(utterance: Any, split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    for index, (number, turns) in enumerate(dialogues(split, size, seed, start)):
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
    unjudged = {"original_response": None, "BEGIN": None, "VRM": None}
    return {**_edited(exchange, position), "response": _first_reply(exchange, position).text, **unjudged}


NOTHING = "no_passages_used"
_UNUSED_EVERY = 11  # one wizard turn in this many used no passage


def parlai_rows(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    """Makes Wizard of Wikipedia's dialogues as ParlAI has them; the size counts wizard turns."""
    for number, exchanges in dialogues(split, size, seed, start):
        topic = exchanges[0].topic.removeprefix("the ")
        # The wizard opens every third conversation: its first line then answers no one.
        wizard_first = number % 3 == 0
        names = ("1_Apprentice", "0_Wizard") if wizard_first else ("0_Apprentice", "1_Wizard")
        turns: list[dict[str, Any]] = []
        for place, exchange in enumerate(exchanges):
            if not (wizard_first and place == 0):
                turns.append({"speaker": names[0], "text": exchange.history[-1].text})
            turns.append(_wizard(names[1], exchange, topic, number * 5 + place, place))
        yield {"chosen_topic": topic, "dialog": turns}


def _wizard(speaker: str, exchange: Exchange, topic: str, roll: int, place: int) -> dict[str, Any]:
    unused = roll % _UNUSED_EVERY == 0
    reply = exchange.shown_reply(generic=unused)
    if unused:  # the published files have both forms
        sentence = {NOTHING: NOTHING} if roll % 2 else {}
    else:
        sentence = {f"self_{topic.replace(' ', '_')}_{place}": " ".join(exchange.sentences)}
    return {"speaker": speaker, "text": reply.text, "checked_sentence": sentence}


CMU_SPLITS = {"train": "train", "validation": "valid", "test": "test"}
TOPICAL_SPLITS = {
    "train": ("train",),
    "validation": ("valid_freq", "valid_rare"),
    "test": ("test_freq", "test_rare"),
}
NUM_SECTIONS = 4
_BOTH_EVERY = 4  # in one conversation of this many both people saw the document
_PERSONAL_EVERY = 9  # one turn in this many names no section


def write_cmu_dog(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes CMU-DoG; `num_rows` counts exchanges. Each conversation has its document in WikiData."""
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
        "whoSawDoc": ["user1", "user2"] if number % _BOTH_EVERY == 0 else ["user2"],
        "wikiDocumentIdx": document,
    }


def write_topical_chat(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes Topical-Chat: all five files with their reading sets; `num_rows` counts exchanges."""
    for split, size in sizes(num_rows).items():
        for name, start in zip(TOPICAL_SPLITS[split], (0, PART), strict=False):
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
        yield name, ({"content": turns}, _reading_set(exchanges))


def _turn(agent: str, message: str, sections: list[str]) -> dict[str, Any]:
    return {"message": message, "agent": agent, "knowledge_source": sections}


def _reading_set(exchanges: list[Exchange]) -> dict[str, Any]:
    sections = {}
    for i in range(3):
        about = exchanges[i::3]
        sections[f"FS{i + 1}"] = {
            "shortened_wiki_lead_section": " ".join(about[0].sentences) if about else "",
            "fun_facts": [" ".join(exchange.sentences) for exchange in about[1:]],
        }
    return {"agent_1": sections, "agent_2": sections, "article": {"url": None}}
