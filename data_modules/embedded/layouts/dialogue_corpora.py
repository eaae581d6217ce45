"""Dialogue corpora in their official layouts, with the fields that their loaders read."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from data_modules.embedded.layouts.common import PART, Layout, NumRows, dialogues, sizes, write_json, write_json_object

GENERIC_EVERY = 15  # one turn in this many had a generic reply before it was edited


def faithdial_rows(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    """Makes FaithDial's dialogues: responses are faithful; tags of edited ones are about their `original_response`."""
    for index, (number, exchanges) in enumerate(dialogues(split, size, seed, start)):
        utterances = []
        for position, exchange in enumerate(exchanges, start=number * 7):
            # The reply before it was edited, as Wizard of Wikipedia has it.
            first = exchange.shown_reply(generic=position % GENERIC_EVERY == 0)
            utterance = {
                "history": [turn.text for turn in exchange.history],
                "knowledge": " ".join(exchange.sentences),
                "response": exchange.faithful.text,
                "original_response": None if first is exchange.faithful else first.text,
                "BEGIN": list(first.tags),
                "VRM": list(first.vrm),
            }
            utterances.append(utterance)
        yield {"dialog_idx": index, "utterances": utterances}


def wow_rows(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    """Makes Wizard of Wikipedia's dialogues in FaithDial's layout: unedited responses, without tags."""
    for dialogue in faithdial_rows(split, size, seed, start):
        for turn in dialogue["utterances"]:
            turn["response"] = turn["original_response"] or turn["response"]
            turn |= {"original_response": None, "BEGIN": None, "VRM": None}
        yield dialogue


NOTHING = "no_passages_used"


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
            roll = number * 5 + place
            unused = roll % 11 == 0
            reply = exchange.shown_reply(generic=unused)
            if unused:  # the published files have both forms
                sentence = {NOTHING: NOTHING} if roll % 2 else {}
            else:
                sentence = {f"self_{topic.replace(' ', '_')}_{place}": " ".join(exchange.sentences)}
            turns.append({"speaker": names[1], "text": reply.text, "checked_sentence": sentence})
        yield {"chosen_topic": topic, "dialog": turns}


NUM_SECTIONS = 4


def write_cmu_dog(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes CMU-DoG; `num_rows` counts exchanges. Each conversation has its document in WikiData."""
    document_number = 0
    for split, size in sizes(num_rows).items():
        for number, exchanges in dialogues(split, size, seed):
            name = hashlib.sha1(f"{seed}:{split}:{number}".encode()).hexdigest()
            shown = [min(place, NUM_SECTIONS - 1) for place in range(len(exchanges))]  # the section of each exchange
            texts = ["" for _ in range(NUM_SECTIONS)]
            for section, exchange in zip(shown, exchanges, strict=True):
                texts[section] = " ".join([texts[section], *exchange.sentences]).strip()
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
            document = {
                "0": first,
                **{str(i): texts[i] for i in range(1, NUM_SECTIONS)},
                "wikiDocumentIdx": document_number,
            }
            write_json_object(folder / "WikiData" / f"{split}_{number}.json", document)
            messages = []
            for section, exchange in zip(shown, exchanges, strict=True):
                said = {"user1": exchange.history[-1].text, "user2": exchange.shown_reply(generic=False).text}
                messages += [{"docIdx": section, "text": text, "uid": user} for user, text in said.items()]
            conversation = {
                "history": messages,
                "whoSawDoc": ["user1", "user2"] if number % 4 == 0 else ["user2"],
                "wikiDocumentIdx": document_number,
            }
            place_of_split = folder / "Conversations" / ("valid" if split == "validation" else split)
            write_json_object(place_of_split / f"{name}.json", conversation)
            document_number += 1
    return folder


def write_topical_chat(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes Topical-Chat: all five files with their reading sets; `num_rows` counts exchanges."""
    for split, size in sizes(num_rows).items():
        names = {"train": ["train"], "validation": ["valid_freq", "valid_rare"], "test": ["test_freq", "test_rare"]}
        for name, start in zip(names[split], (0, PART), strict=False):
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
            if (number + place) % 9 == 0:
                sections = sections[1:]
            said = ("agent_1", exchange.history[-1].text, ["Personal Knowledge"])
            answered = ("agent_2", exchange.shown_reply(generic=False).text, sections)
            for agent, message, named in (said, answered):
                turns.append({"message": message, "agent": agent, "knowledge_source": named})
        reading = {}
        for i in range(3):
            about = exchanges[i::3]
            reading[f"FS{i + 1}"] = {
                "shortened_wiki_lead_section": " ".join(about[0].sentences) if about else "",
                "fun_facts": [" ".join(exchange.sentences) for exchange in about[1:]],
            }
        yield name, ({"content": turns}, {"agent_1": reading, "agent_2": reading, "article": {"url": None}})


WRITERS: dict[str, Callable[..., Path]] = {
    "faithdial": Layout(
        rows=faithdial_rows, write=write_json, train="train.json", validation="valid.json", test="test.json"
    ),
    "wow": Layout(
        rows=parlai_rows,
        write=write_json,
        train="train.json",
        validation="valid_random_split.json valid_topic_split.json",
        test="test_random_split.json test_topic_split.json",
    ),
    "wow_faithdial": Layout(
        rows=wow_rows, write=write_json, train="wow_train.json", validation="wow_valid.json", test="wow_test.json"
    ),
    "cmu_dog": write_cmu_dog,
    "topical_chat": write_topical_chat,
}
