"""CMU-DoG in its official layout: who answers, from which section, after which turns."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from tests.data_modules.official.dialogues import TURNS
from tests.data_modules.official_rows import make, read, write

FIRST = {"director": "Ada Fenn", "cast": ["Tor Vik as Bo", "Una Lys as Eve"], "movieName": "The Lake", "year": "1999"}
TABLE = "cast: Tor Vik as Bo; Una Lys as Eve director: Ada Fenn movieName: The Lake year: 1999"
DOCUMENT = {"0": FIRST, "1": "Bo finds a lake.", "2": "Eve swims.", "3": "They leave.", "wikiDocumentIdx": 7}
SAID = [(0, "hi", 2), (0, "It is by Ada Fenn.", 1), (0, "Tor Vik plays.", 1), (1, "Bo finds a lake!", 1)]
SAID += [(1, " ", 2), (2, "and then?", 2), (2, "Eve swims", 1)]
TALK = {
    "history": [{"docIdx": section, "text": text, "uid": f"user{user}"} for section, text, user in SAID],
    **{"date": "2018-01-01", "rating": 3, "whoSawDoc": ["user1"], "wikiDocumentIdx": 7},
}


def corpus(folder: Path, talk: dict[str, Any] = TALK, document: dict[str, Any] | None = DOCUMENT) -> Path:
    for path, values in (("Conversations/valid/ab12.json", talk), ("WikiData/The_Lake.json", document)):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if values is not None:
            file.write_text(json.dumps(values, indent=2))
    return folder


def test_turns_of_those_who_saw_the_text(tmp_path: Path) -> None:
    examples, counts = read(make("cmu_dog", corpus(tmp_path)))
    assert [e.id for e in examples] == ["ab12:1", "ab12:3", "ab12:6"]
    assert {(e.group, e.split) for e in examples} == {("ab12", "validation")}
    assert [e.response for e in examples] == ["It is by Ada Fenn. Tor Vik plays.", "Bo finds a lake!", "Eve swims"]
    assert [e.knowledge for e in examples] == [TABLE, "Bo finds a lake.", "Eve swims."]
    last = [(turn.speaker, turn.text) for turn in examples[-1].history]
    assert last[:2] == [("seeker", "hi"), ("wizard", "It is by Ada Fenn. Tor Vik plays.")]
    assert last[2:] == [("wizard", "Bo finds a lake!"), ("seeker", "and then?")]
    assert all(e.label is None and e.reference == e.response for e in examples)
    assert examples[1].meta == {"movie": 7, "doc_idx": 1}
    wanted = {"layout: conversations": 1, "dropped: has not seen the document": 2, "dropped: empty message": 1}
    assert counts == wanted | {"kept": 3}


def test_the_folder_of_conversations_is_read_beside_turns(tmp_path: Path) -> None:
    row = {"conv": "x", "history": ["a"], "knowledge": "k", "response": "r"}
    (corpus(tmp_path) / "cmu_dog_valid_turns.jsonl").write_text(json.dumps(row))
    assert [e.id for e in read(make("cmu_dog", tmp_path))[0]] == ["cmu_dog_valid_turns:0"]
    conversations = read(make("cmu_dog", tmp_path / "Conversations"))[0]
    assert [e.id for e in conversations] == ["ab12:1", "ab12:3", "ab12:6"]
    assert read(make("cmu_dog", tmp_path / "Conversations" / "valid" / "ab12.json"))[0] == conversations


def test_a_section_of_numbers_is_text_and_an_empty_one_is_dropped(tmp_path: Path) -> None:
    document = {**DOCUMENT, "0": {**FIRST, "year": 1999}, "1": " "}
    examples, counts = read(make("cmu_dog", corpus(tmp_path, document=document)))
    assert "year: 1999" in examples[0].knowledge and counts["dropped: the section shown is empty"] == 1


def test_a_row_cannot_set_what_our_own_code_sets(tmp_path: Path) -> None:
    """A turn with a field `probability` was trained on it, or ended the training."""
    row = {**TURNS[0], "probability": "high", "whole_knowledge": 5, "nested": {"a": [1]}}
    (found,), _ = read(make("cmu_dog", write(tmp_path / "cmu_dog_test_turns.jsonl", [row])))
    assert found.meta == {"rating": 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wikiDocumentIdx": 8}, "'wikiDocumentIdx' is 8: WikiData has no such document\n.*\n  hint: put the official"),
        ({"whoSawDoc": "user1"}, "field 'whoSawDoc' must be a list"),
        ({"history": [{"docIdx": 9, "text": "hi", "uid": "user1"}]}, "message 0: the document has no section 9"),
        ({"history": [{"docIdx": 0, "text": 3, "uid": "user1"}]}, "message 0: field 'text' must be text"),
        ({"history": ["hi"]}, "message 0: must be a JSON object"),
    ],
)
def test_a_bad_message_spoils_its_conversation(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = corpus(tmp_path, {**copy.deepcopy(TALK), **change})
    with pytest.raises(UserError, match=message):
        read(make("cmu_dog", folder))
    (folder / "Conversations/valid/cd34.json").write_text(json.dumps(TALK))
    examples, counts = read(make("cmu_dog", folder), on_bad_row="skip")
    assert {e.group for e in examples} == {"cd34"} and counts["rejected: bad row"] == 1
