"""The public corpora themselves, where FAITHKIT_TEST_DATA names a folder that holds them: exact counts."""

import os
from pathlib import Path
from typing import Any

import pytest

from data_modules.datasets.topical_chat import overlap_f1
from faithkit.records import Example
from tests.data_modules.official_rows import labels, make, read

ROOT = os.environ.get("FAITHKIT_TEST_DATA")
EXCERPTS = pytest.mark.skipif(ROOT is None, reason="set FAITHKIT_TEST_DATA to a folder with the public corpora")

# Dataset, path below the folder, split, options, labels, and counts besides the number kept.
WANTED: list[tuple[str, str, str, dict[str, Any], dict[str | None, int], dict[str, int]]] = [
    ("wow", "wow", "validation", {}, {None: 3686}, {"layout: FaithDial": 981}),
    ("wow", "wow", "test", {}, {None: 1744}, {"layout: FaithDial": 471}),
    ("faithdial", "wow/wow_valid.json", "all", {}, {None: 3686}, {"case: unedited, untagged": 3686}),
    ("cmu_dog", "cmu_dog", "validation", {}, {None: 1500}, {"layout: turns": 1500}),
    ("cmu_dog", "cmu_dog/Conversations", "validation", {}, {None: 770}, {
        "layout: conversations": 40, "dropped: has not seen the document": 224,
        "dropped: opens the conversation": 27}),
    ("topical_chat", "topical_chat", "validation", {}, {None: 1500}, {"layout: turns": 1500}),
    ("begin", "begin", "validation", {}, {"faithful": 239, "hallucinated": 528},
        {"layout: BEGIN 2022": 846, "dropped: generic": 79}),
    ("begin", "begin", "test", {}, {"faithful": 757, "hallucinated": 1107}, {"layout: BEGIN 2022": 1864}),
    ("begin", "begin", "validation", {"generic": "hallucinated"}, {"faithful": 239, "hallucinated": 607},
        {"layout: BEGIN 2022": 846, "generic, taken as hallucinated": 79}),
    ("audit", "faithdial_audit", "all", {}, {"faithful": 408, "hallucinated": 1068},
        {"dropped: generic": 124, "dropped: empty response": 1, "misspelt labels, read by the table": 4}),
    ("snli", "snli", "validation", {}, {"faithful": 3329, "hallucinated": 6513}, {"dropped: no gold label": 158}),
    ("snli", "snli", "validation", {"neutral": "drop"}, {"faithful": 3329, "hallucinated": 3278},
        {"dropped: no gold label": 158, "dropped: neutral": 3235}),
    ("conjnli", "conjnli", "validation", {}, {"faithful": 204, "hallucinated": 419}, {}),
    ("ragtruth", "ragtruth", "test", {}, {"faithful": 439, "hallucinated": 93},
        {"dropped: quality incorrect_refusal": 1}),
    ("ragtruth", "ragtruth", "all", {"official_split": False, "quality": "all"}, {"faithful": 443, "hallucinated": 96},
        {}),
    ("xsum_tokens", "xsum_tokens", "all", {}, {"faithful": 164, "hallucinated": 1321}, {}),
    ("halueval", "halueval", "all", {}, {"faithful": 4192, "hallucinated": 1315}, {
        "spans: located": 822, "spans: not in the response": 119, "spans: of several places, the first taken": 4,
        "spans: none named in a hallucinated response": 13}),
    ("halueval", "halueval", "all", {"official": True}, {"faithful": 243, "hallucinated": 257},
        {"dropped: general, which the official run does not judge": 4507}),
    ("diahalu", "diahalu", "all", {}, {"faithful": 370, "hallucinated": 293}, {
        "repaired: an explanation that is not JSON": 4,
        "turns missing, repeated or out of order: kept as they are": 7}),
    ("diahalu", "diahalu", "all", {"level": "turn"}, {"faithful": 3248, "hallucinated": 298, None: 1075},
        {"rounds without a label": 1075, "turns missing, repeated or out of order: kept as they are": 7}),
]  # fmt: skip


@EXCERPTS
@pytest.mark.parametrize(("name", "path", "split", "options", "wanted", "counts"), WANTED)
def test_counts(
    name: str, path: str, split: str, options: dict[str, Any], wanted: dict[str | None, int], counts: dict[str, int]
) -> None:
    assert ROOT is not None
    examples, found = read(make(name, Path(ROOT) / path, **options), split)
    assert labels(examples) == wanted
    assert found == counts | {"kept": sum(wanted.values())}


@EXCERPTS
def test_cmu_dogs_conversations_give_the_turns_that_were_cut_out_of_them() -> None:
    assert ROOT is not None
    turns = read(make("cmu_dog", Path(ROOT) / "cmu_dog"))[0]
    raw = read(make("cmu_dog", Path(ROOT) / "cmu_dog" / "Conversations"))[0]
    conversations = {example.group for example in raw}

    def shown(examples: list[Example]) -> set[Any]:  # the rows of turns keep the last six of the history
        return {(e.group, e.knowledge, e.history[-6:], e.response) for e in examples if e.group in conversations}

    assert shown(raw) == shown(turns) and len(conversations) == 40


@EXCERPTS
def test_topical_chats_overlap_is_the_one_that_its_turns_tell() -> None:
    assert ROOT is not None
    examples = read(make("topical_chat", ROOT))[0]
    wrong = [e for e in examples if round(overlap_f1(e.response, e.knowledge), 3) != e.meta["overlap_f1"]]
    assert not wrong


RELEASES = os.environ.get("FAITHKIT_TEST_RELEASES")
WHOLE: list[tuple[str, str, dict[str, Any], dict[str, int], dict[str, int]]] = [
    ("diahalu", "DiaHalu/DiaHalu_V1.xlsx", {}, {"faithful": 419, "hallucinated": 329}, {}),
    ("diahalu", "DiaHalu/DiaHalu_V2.xlsx", {"models": "ChatGPT3.5"}, {"faithful": 419, "hallucinated": 329},
        {"dropped: model GPT4": 355}),
    ("diahalu", "DiaHalu/DiaHalu_Bench.jsonl", {}, {"faithful": 627, "hallucinated": 476}, {}),
    ("audit", "FaithDial", {"generic": "hallucinated"}, {"faithful": 572, "hallucinated": 1828}, {
        "dropped: blank row": 789, "dropped: no label": 3, "dropped: no knowledge": 3, "dropped: empty response": 1}),
    ("halueval", "HaluEval", {}, {"faithful": 3692, "hallucinated": 815}, {}),
    ("begin", "BEGIN-dataset", {}, {"faithful": 1392, "hallucinated": 2209}, {"dropped: generic": 6}),
]  # fmt: skip


@pytest.mark.skipif(RELEASES is None, reason="set FAITHKIT_TEST_RELEASES to a folder with the papers' repositories")
@pytest.mark.parametrize(("name", "path", "options", "wanted", "dropped"), WHOLE)
def test_complete_releases(
    name: str, path: str, options: dict[str, Any], wanted: dict[str, int], dropped: dict[str, int]
) -> None:
    assert RELEASES is not None
    examples, counts = read(make(name, Path(RELEASES) / path, **options))
    assert labels(examples) == wanted
    assert {count: number for count, number in counts.items() if count.startswith("dropped")} == dropped
