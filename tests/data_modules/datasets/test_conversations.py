"""CMU-DoG and Topical-Chat in their official layouts: who answers, and on which text a turn rests."""

from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from tests.data_modules.official.dialogues import TURNS
from tests.data_modules.official_rows import make, read, read_around_a_bad_row, write

FIRST = {"director": "Ada Fenn", "cast": ["Tor Vik as Bo", "Una Lys as Eve"], "movieName": "The Lake", "year": "1999"}
TABLE = "cast: Tor Vik as Bo; Una Lys as Eve director: Ada Fenn movieName: The Lake year: 1999"
DOCUMENT = {"0": FIRST, "1": "Bo finds a lake.", "2": "Eve swims.", "3": "They leave.", "wikiDocumentIdx": 7}
OF_MOVIES = [(0, "hi", 2), (0, "It is by Ada Fenn.", 1), (0, "Tor Vik plays.", 1), (1, "Bo finds a lake!", 1)]
OF_MOVIES += [(1, " ", 2), (2, "and then?", 2), (2, "Eve swims", 1)]
MOVIE_TALK = {
    "history": [{"docIdx": section, "text": text, "uid": f"user{user}"} for section, text, user in OF_MOVIES],
    **{"date": "2018-01-01", "rating": 3, "whoSawDoc": ["user1"], "wikiDocumentIdx": 7},
}


def cmu_dog(folder: Path, talk: Any = MOVIE_TALK, document: Any = DOCUMENT) -> Path:
    write(folder / "Conversations/valid/ab12.json", talk)
    write(folder / "WikiData/The_Lake.json", document)
    return folder


def test_turns_of_those_who_saw_the_text(tmp_path: Path) -> None:
    examples, counts = read(make("cmu_dog", cmu_dog(tmp_path)))
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
    document = {**DOCUMENT, "0": {**FIRST, "year": 1999}, "1": " "}
    examples, counts = read(make("cmu_dog", cmu_dog(tmp_path, document=document)))
    assert "year: 1999" in examples[0].knowledge and counts["dropped: the section shown is empty"] == 1


def test_the_folder_of_conversations_is_read_beside_turns(tmp_path: Path) -> None:
    write(cmu_dog(tmp_path) / "cmu_dog_valid_turns.jsonl", TURNS[:1])
    assert [e.id for e in read(make("cmu_dog", tmp_path))[0]] == ["cmu_dog_valid_turns:0"]
    conversations = read(make("cmu_dog", tmp_path / "Conversations"))[0]
    assert [e.id for e in conversations] == ["ab12:1", "ab12:3", "ab12:6"]
    assert read(make("cmu_dog", tmp_path / "Conversations" / "valid" / "ab12.json"))[0] == conversations


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
    folder = cmu_dog(tmp_path, {**MOVIE_TALK, **change})
    write(folder / "Conversations/valid/cd34.json", MOVIE_TALK)
    assert {e.group for e in read_around_a_bad_row("cmu_dog", folder, message)} == {"cd34"}


LEAD = "Rugby is a team sport. It is played with an oval ball."
FACT = "A rugby ball was once made of a pig's bladder."
ARTICLE = "The league grew. It has twelve teams now!"
SAID = [
    ("Rugby is a team sport, right?", ["FS1"]),
    ("An oval ball it is played with.", ["FS1", "AS1"]),
    ("Was a rugby ball once a pig's bladder?", ["FS1"]),
    ("I love it", ["Personal Knowledge"]),
    ("  ", ["FS1"]),
    ("Well, nobody cares!", ["FS1", "FS2"]),
    ("It has twelve teams", ["FS1", "AS1"]),
]
SPOKEN = [(f"agent_{1 + n % 2}", *said) for n, said in enumerate(SAID)]
TALK = {"content": [{"agent": who, "message": text, "knowledge_source": named} for who, text, named in SPOKEN]}
SECTION = {"entity": "Rugby", "shortened_wiki_lead_section": LEAD, "fun_facts": [FACT, None]}
BUILT = {"t_1": {"config": "A", "agent_1": {"FS1": SECTION}, "agent_2": {"FS1": SECTION}, "article": {"AS1": ARTICLE}}}
NUMBERED = {"entity": "Rugby", "shortened_wiki_lead_section": 12, "fun_facts": ["t3_abc"]}
UNBUILT = {"t_1": {"config": "A", "article_url": "x", "agent_1": {"FS1": NUMBERED}, "agent_2": {"FS1": NUMBERED}}}
WIKI = {"shortened_wiki_lead_section": {LEAD: 12}, "summarized_wiki_lead_section": {}}


PLACES = {"built": "reading_sets/post-build/valid_freq.json", "unbuilt": "reading_sets/pre-build/valid_freq.json"}
PLACES |= {"talks": "conversations/valid_freq.json", "wiki": "src/wiki/wiki.json"}


def topical_chat(folder: Path, **files: Any) -> Path:
    for name, values in {"talks": {"t_1": TALK}, **files}.items():
        write(folder / PLACES[name], values)
    return folder


def test_a_turn_rests_on_the_nearest_sentence_that_it_names(tmp_path: Path) -> None:
    examples, counts = read(make("topical_chat", topical_chat(tmp_path, built=BUILT)))
    assert [(e.id, e.knowledge, e.meta["knowledge_source"], e.meta["candidates"]) for e in examples] == [
        ("t_1:1", "It is played with an oval ball.", "FS1", 5),
        ("t_1:2", FACT, "FS1", 3),
        ("t_1:6", "It has twelve teams now!", "AS1", 5),
    ]
    fields = {(e.group, e.split, e.label, e.reference == e.response) for e in examples}
    assert fields == {("t_1", "validation", None, True)}
    speakers = [turn.speaker for turn in examples[-1].history]
    assert speakers == ["wizard", "seeker", "wizard", "seeker", "seeker"]  # the empty message is left out
    dropped = ["opens the conversation", "no knowledge named", "empty message"]
    dropped.append("little in common with the knowledge named")
    layout = {"layout: conversations, reading sets built": 1}
    assert counts == layout | {f"dropped: {reason}": 1 for reason in dropped} | {"kept": 3}


def test_without_the_build_wikipedia_alone_is_read_and_told(tmp_path: Path) -> None:
    examples, counts = read(make("topical_chat", topical_chat(tmp_path, unbuilt=UNBUILT, wiki=WIKI)))
    assert counts["layout: conversations, reading sets not built: Wikipedia alone"] == 1
    assert {e.meta["knowledge_source"] for e in examples} == {"FS1"} and "t3_abc" not in str(examples)
    assert examples[0].knowledge == "It is played with an oval ball."
    built = read(make("topical_chat", topical_chat(tmp_path, unbuilt=UNBUILT, wiki=WIKI, built=BUILT)))[1]
    assert built["layout: conversations, reading sets built"] == 1


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({}, "the conversations have no reading sets"),
        ({"unbuilt": UNBUILT}, "the conversations have no reading sets"),
        ({"built": {}}, "turn 0: the reading sets have no conversation t_1"),
        ({"built": UNBUILT}, "section FS1 of the reading set has no text but 12\n.*\n  hint: run the official"),
        ({"unbuilt": UNBUILT, "wiki": {**WIKI, "shortened_wiki_lead_section": {}}}, "has no text but None"),
    ],
)
def test_missing_reading_sets_are_told(tmp_path: Path, others: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(make("topical_chat", topical_chat(tmp_path, **others)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agent": "agent_3"}, "conversation t_1: turn 0: field 'agent' is 'agent_3'"),
        ({"message": 3}, "conversation t_1: turn 0: field 'message' must be text"),
        ({"knowledge_source": "FS1"}, "conversation t_1: turn 0: field 'knowledge_source' must be a list"),
    ],
)
def test_a_bad_turn_spoils_its_conversation_alone(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    first, *rest = TALK["content"]
    talks = {"t_1": {"content": [{**first, **change}, *rest]}, "t_2": TALK}
    folder = topical_chat(tmp_path, talks=talks, built={**BUILT, "t_2": BUILT["t_1"]})
    assert {e.group for e in read_around_a_bad_row("topical_chat", folder, message)} == {"t_2"}
