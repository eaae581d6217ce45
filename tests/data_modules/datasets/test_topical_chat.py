"""Topical-Chat in its official layout: which sentence a turn rests on, with reading sets built or not."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.datasets.topical_chat_knowledge import best_sentence, overlap_f1
from faithkit.errors import UserError
from tests.data_modules.official_rows import make, read

LEAD = "Rugby is a team sport. It is played with an oval ball."
FACT = "A rugby ball was once made of a pig's bladder."
ARTICLE = "The league grew. It has twelve teams now!"
TALK = {
    "content": [
        {"agent": "agent_1", "message": "Rugby is a team sport, right?", "knowledge_source": ["FS1"]},
        {"agent": "agent_2", "message": "An oval ball it is played with.", "knowledge_source": ["FS1", "AS1"]},
        {"agent": "agent_1", "message": "Was a rugby ball once a pig's bladder?", "knowledge_source": ["FS1"]},
        {"agent": "agent_2", "message": "I love it", "knowledge_source": ["Personal Knowledge"]},
        {"agent": "agent_1", "message": "  ", "knowledge_source": ["FS1"]},
        {"agent": "agent_2", "message": "Well, nobody cares!", "knowledge_source": ["FS1", "FS2"]},
        {"agent": "agent_1", "message": "It has twelve teams", "knowledge_source": ["FS1", "AS1"]},
    ]
}
SECTION = {"entity": "Rugby", "shortened_wiki_lead_section": LEAD, "fun_facts": [FACT, None]}
BUILT = {"t_1": {"config": "A", "agent_1": {"FS1": SECTION}, "agent_2": {"FS1": SECTION}, "article": {"AS1": ARTICLE}}}
NUMBERED = {"entity": "Rugby", "shortened_wiki_lead_section": 12, "fun_facts": ["t3_abc"]}
UNBUILT = {"t_1": {"config": "A", "article_url": "x", "agent_1": {"FS1": NUMBERED}, "agent_2": {"FS1": NUMBERED}}}
WIKI = {"shortened_wiki_lead_section": {LEAD: 12}, "summarized_wiki_lead_section": {}}


def corpus(folder: Path, talks: Any = None, **beside: Any) -> Path:
    files = {"conversations/valid_freq.json": talks or {"t_1": TALK}}
    names = {"built": "post-build/valid_freq.json", "unbuilt": "pre-build/valid_freq.json"}
    files |= {f"reading_sets/{names[name]}": beside[name] for name in names if name in beside}
    files |= {"src/wiki/wiki.json": beside["wiki"]} if "wiki" in beside else {}
    for path, values in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(values, indent=2))
    return folder


def test_a_turn_rests_on_the_nearest_sentence_that_it_names(tmp_path: Path) -> None:
    examples, counts = read(make("topical_chat", corpus(tmp_path, built=BUILT)))
    assert [(e.id, e.knowledge, e.meta["knowledge_source"], e.meta["candidates"]) for e in examples] == [
        ("t_1:1", "It is played with an oval ball.", "FS1", 5),
        ("t_1:2", FACT, "FS1", 3),
        ("t_1:6", "It has twelve teams now!", "AS1", 5),
    ]
    assert {(e.group, e.split, e.label, e.reference == e.response) for e in examples} == {
        ("t_1", "validation", None, True)
    }
    speakers = [turn.speaker for turn in examples[-1].history]
    assert speakers == ["wizard", "seeker", "wizard", "seeker", "seeker"]  # the empty message is left out
    assert counts == {
        "layout: conversations, reading sets built": 1,
        "dropped: opens the conversation": 1,
        "dropped: no knowledge named": 1,
        "dropped: empty message": 1,
        "dropped: little in common with the knowledge named": 1,
        "kept": 3,
    }


def test_without_the_build_wikipedia_alone_is_read_and_told(tmp_path: Path) -> None:
    examples, counts = read(make("topical_chat", corpus(tmp_path, unbuilt=UNBUILT, wiki=WIKI)))
    assert counts["layout: conversations, reading sets not built: Wikipedia alone"] == 1
    assert {e.meta["knowledge_source"] for e in examples} == {"FS1"} and "t3_abc" not in str(examples)
    assert examples[0].knowledge == "It is played with an oval ball."
    built = read(make("topical_chat", corpus(tmp_path, unbuilt=UNBUILT, wiki=WIKI, built=BUILT)))[1]
    assert built["layout: conversations, reading sets built"] == 1


def test_the_smallest_overlap_is_a_switch(tmp_path: Path) -> None:
    folder = corpus(tmp_path, built=BUILT)
    assert len(read(make("topical_chat", folder, min_overlap=0.0))[0]) == 4
    assert len(read(make("topical_chat", folder, min_overlap=0.95))[0]) == 1
    with pytest.raises(UserError, match="min_overlap is 2"):
        make("topical_chat", folder, min_overlap=2)


def test_frequent_and_rare_are_splits_of_their_own(tmp_path: Path) -> None:
    corpus(tmp_path, built=BUILT)
    for name in ("train", "valid_rare", "test_freq", "test_rare"):
        (tmp_path / "conversations" / f"{name}.json").write_text("{}")
    wanted = ["train", "validation", "test", "validation_rare", "test_rare"]
    assert list(make("topical_chat", tmp_path).files()) == wanted
    assert list(make("topical_chat", tmp_path / "conversations").files()) == wanted


@pytest.mark.parametrize(
    ("beside", "told"),
    [
        ({}, "no reading sets beside the conversations"),
        ({"unbuilt": UNBUILT}, "no reading sets beside the conversations"),
        ({"built": {}}, "turn 0: the reading sets have no conversation t_1"),
        ({"built": UNBUILT}, "section FS1 of the reading set has no text but 12\n.*\n  hint: run the official"),
        ({"unbuilt": UNBUILT, "wiki": {**WIKI, "shortened_wiki_lead_section": {}}}, "has no text but None"),
    ],
)
def test_missing_reading_sets_are_told(tmp_path: Path, beside: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        read(make("topical_chat", corpus(tmp_path, **beside)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"agent": "agent_3"}, "conversation t_1: turn 0: field 'agent' is 'agent_3'"),
        ({"message": 3}, "conversation t_1: turn 0: field 'message' must be text"),
        ({"knowledge_source": "FS1"}, "conversation t_1: turn 0: field 'knowledge_source' must be a list"),
    ],
)
def test_a_bad_turn_spoils_its_conversation_alone(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    first, *rest = TALK["content"]
    talks = {"t_1": {"content": [{**first, **change}, *rest]}, "t_2": TALK}
    folder = corpus(tmp_path, talks, built={**BUILT, "t_2": BUILT["t_1"]})
    with pytest.raises(UserError, match=told):
        read(make("topical_chat", folder))
    examples, counts = read(make("topical_chat", folder), on_bad_row="skip")
    assert {e.group for e in examples} == {"t_2"} and counts["rejected: bad row"] == 1


@given(st.text(), st.text())
def test_overlap_is_a_share_and_the_same_both_ways(one: str, other: str) -> None:
    assert 0 <= overlap_f1(one, other) == overlap_f1(other, one) <= 1
    assert overlap_f1(f"{one} x", f"{one} x") == 1


def test_of_equal_sentences_the_first_is_taken() -> None:
    found = best_sentence("a b", [("FS1", "c"), ("FS2", "a b c"), ("FS3", "b a c")])
    assert found and (found.text, found.section) == ("a b c", "FS2")
    assert best_sentence("a", []) is None
