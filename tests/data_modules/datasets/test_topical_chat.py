"""Topical-Chat in its official layout: which sentence a turn rests on, with reading sets built or not."""

import json
from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from tests.data_modules.official_rows import make, read

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
TALK = {
    "content": [
        {"agent": f"agent_{1 + n % 2}", "message": text, "knowledge_source": named}
        for n, (text, named) in enumerate(SAID)
    ]
}
SECTION = {"entity": "Rugby", "shortened_wiki_lead_section": LEAD, "fun_facts": [FACT, None]}
BUILT = {"t_1": {"config": "A", "agent_1": {"FS1": SECTION}, "agent_2": {"FS1": SECTION}, "article": {"AS1": ARTICLE}}}
NUMBERED = {"entity": "Rugby", "shortened_wiki_lead_section": 12, "fun_facts": ["t3_abc"]}
UNBUILT = {"t_1": {"config": "A", "article_url": "x", "agent_1": {"FS1": NUMBERED}, "agent_2": {"FS1": NUMBERED}}}
WIKI = {"shortened_wiki_lead_section": {LEAD: 12}, "summarized_wiki_lead_section": {}}


def corpus(folder: Path, talks: Any = None, **others: Any) -> Path:
    files = {"conversations/valid_freq.json": talks or {"t_1": TALK}}
    names = {"built": "post-build/valid_freq.json", "unbuilt": "pre-build/valid_freq.json"}
    files |= {f"reading_sets/{names[name]}": others[name] for name in names if name in others}
    files |= {"src/wiki/wiki.json": others["wiki"]} if "wiki" in others else {}
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
    fields = {(e.group, e.split, e.label, e.reference == e.response) for e in examples}
    assert fields == {("t_1", "validation", None, True)}
    speakers = [turn.speaker for turn in examples[-1].history]
    assert speakers == ["wizard", "seeker", "wizard", "seeker", "seeker"]  # the empty message is left out
    dropped = ["opens the conversation", "no knowledge named", "empty message"]
    dropped.append("little in common with the knowledge named")
    layout = {"layout: conversations, reading sets built": 1}
    assert counts == layout | {f"dropped: {reason}": 1 for reason in dropped} | {"kept": 3}


def test_without_the_build_wikipedia_alone_is_read_and_told(tmp_path: Path) -> None:
    examples, counts = read(make("topical_chat", corpus(tmp_path, unbuilt=UNBUILT, wiki=WIKI)))
    assert counts["layout: conversations, reading sets not built: Wikipedia alone"] == 1
    assert {e.meta["knowledge_source"] for e in examples} == {"FS1"} and "t3_abc" not in str(examples)
    assert examples[0].knowledge == "It is played with an oval ball."
    built = read(make("topical_chat", corpus(tmp_path, unbuilt=UNBUILT, wiki=WIKI, built=BUILT)))[1]
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
        read(make("topical_chat", corpus(tmp_path, **others)))


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
    folder = corpus(tmp_path, talks, built={**BUILT, "t_2": BUILT["t_1"]})
    with pytest.raises(UserError, match=message):
        read(make("topical_chat", folder))
    examples, counts = read(make("topical_chat", folder), on_bad_row="skip")
    assert {e.group for e in examples} == {"t_2"} and counts["rejected: bad row"] == 1
