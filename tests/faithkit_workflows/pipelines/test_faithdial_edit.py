"""Proposals of faithful edits: checked, chosen, put before people, and read back as FaithDial's layout."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.datasets.faithdial import FaithDial
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl
from faithkit.records import FAITHFUL
from faithkit.words import longest_run
from faithkit_workflows.pipelines.faithdial_edit import best_proposals
from tests.faithkit.inference.server import ChatServer
from tests.faithkit_workflows.pipelines.serving import (
    construct_here,
    fill_sheet,
    manifest,
    resume,
    sheet,
    step_rows,
    steps,
)
from tests.running import asking, temporary_folder
from tests.tiny import write_critic

MODEL, SHEET = "editor", "proposals.csv"
LAKE = "The lake of Orvel is ninety metres deep and lies on a plateau in the north."
FIRST = (LAKE, "I swim there every summer!", "I cannot answer this, as I am a program, but its depth is ninety metres.")
SECOND = ("I'm sorry, I cannot help with that.", "...", "Es ist ein See und er ist sehr tief und im Norden.")
SWIM, ORIGINAL = "I swim there every summer!", "In the south, near my house."


def turn(history: list[str], response: str, original: str | None, *tags: str) -> dict[str, Any]:
    texts = {"history": history, "knowledge": LAKE, "response": response, "original_response": original}
    return {**texts, "BEGIN": list(tags), "VRM": []}


ASKED = "Tell me about the lake."
TURNS = [
    turn([ASKED], SWIM, None, "Hallucination"),
    turn([ASKED, SWIM, "Where is it?"], "People say: on a plateau.", ORIGINAL, "Hallucination", "Entailment"),
    turn(["Is it deep?"], "It is ninety metres deep.", None, "Entailment"),
]


def server() -> ChatServer:
    """Serves a model that gives another edit each time that it is asked about a reply."""
    asked: Counter[bool] = Counter()

    def answer(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
        is_first = "every summer" in messages[-1]["content"].rpartition("Reply that says too much:")[2]
        asked[is_first] += 1
        return (FIRST if is_first else SECOND)[asked[is_first] - 1]

    return ChatServer(answer=answer, models=(MODEL,))


def data(folder: Path) -> Path:
    rows = [{"dialog_idx": 7, "utterances": TURNS[:2]}, {"dialog_idx": 8, "utterances": TURNS[2:]}]
    (folder / "test.json").write_text(json.dumps(rows))
    return folder / "test.json"


def editing(served: ChatServer, folder: Path, *more: str) -> list[str]:
    where = [f"pipeline.path={data(folder.parent)}", f"run_dir={folder}", "engine.max_retries=1", *more]
    return ["pipeline=faithdial_edit", *asking(served.url, *where, model=MODEL)]


def fill(folder: Path, **answers: tuple[str, str]) -> None:
    rows = sheet(folder / SHEET)
    for row, name in zip(rows, ("first", "second"), strict=True):
        row["accept"], row["edit"] = answers.get(name, ("", ""))
    fill_sheet(folder / SHEET, rows)


@pytest.fixture(scope="module")
def built() -> Path:
    folder = temporary_folder("faithdial-edit-") / "run"
    with server() as served:
        construct_here(*editing(served, folder))
    return folder


def test_the_best_candidate_of_each_hallucinated_reply_is_proposed(built: Path) -> None:
    first, second = sheet(built / SHEET)
    assert first["turn"] == "7:0" and first["original"] == TURNS[0]["response"] and first["knowledge"] == LAKE
    assert first["proposal"].startswith("I cannot answer this") and first["candidate"] == f"{MODEL}-3"
    assert (first["faults"], first["copied_words"], first["accept"]) == ("", "3", "")
    # People had edited this one: their text is not what is edited, and no candidate can be used.
    assert second["original"] == ORIGINAL and second["proposal"] == ""
    assert "propose-editor-1: refusal" in second["faults"] and "empty" in second["faults"]
    result = manifest(built)["result"]
    assert result["candidates with the fault: copies"] == 1 and result["candidates with the fault: unchanged"] == 1
    assert result["candidates that failed: other language"] == 1 and result["replies without a proposal"] == 1
    assert [row["id"] for row in read_jsonl(built / "predictions" / "proposals.jsonl")] == ["7:0"]


def test_what_people_accepted_is_read_back_as_faithdial(tmp_path: Path) -> None:
    folder, edited = tmp_path / "run", "It lies in the north."
    with server() as served:
        construct_here(*editing(served, folder))
        asked = len(served.asked)
        fill(folder, first=("yes", ""), second=("", edited))
        resume(folder)
        assert len(served.asked) == asked, "nothing is asked again"
    examples = list(read_examples(FaithDial(path=str(folder / "benchmark")), "test", ReadReport()))
    assert [example.label for example in examples] == ["faithful"] * 2
    assert examples[0].original == TURNS[0]["response"] and examples[0].response == sheet(folder / SHEET)[0]["proposal"]
    assert examples[1].response == edited and examples[1].original == ORIGINAL
    said = [one.text for one in examples[1].history]
    assert said == [ASKED, examples[0].response, "Where is it?"], "later histories contain the accepted text"
    accepted = sheet(folder / SHEET)
    assert [row["accept"] for row in accepted] == ["yes", "yes"] and accepted[1]["edit"] == edited
    fill(folder, first=("no", ""), second=("yes", edited))
    resume(folder)
    (example,) = read_examples(FaithDial(path=str(folder / "benchmark")), "test", ReadReport())
    assert example.response == edited


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({"first": ("maybe", "")}, "accept is 'maybe'"),
        ({"second": ("yes", "")}, "there is no proposal"),
        ({"first": ("yes", TURNS[0]["response"])}, "the accepted text is the original reply"),
    ],
)
def test_answers_that_cannot_be_right_are_refused(answers: Any, problem: str, built: Path) -> None:
    before = (built / SHEET).read_bytes()
    try:
        fill(built, **answers)
        with pytest.raises(UserError, match=problem):
            resume(built)
        assert not (built / "benchmark").exists()
    finally:
        (built / SHEET).write_bytes(before)


@pytest.mark.slow
def test_a_critic_finds_the_replies_and_checks_the_candidates(tmp_path: Path) -> None:
    (tmp_path / "wow").mkdir()
    untagged = [{**turn, "original_response": None, "BEGIN": None, "VRM": None} for turn in TURNS]
    (tmp_path / "wow" / "wow_test.json").write_text(json.dumps([{"dialog_idx": 7, "utterances": untagged}]))
    critic = write_critic(tmp_path / "critic")
    more = ("pipeline.dataset=wow", f"pipeline.detector={critic}", f"pipeline.path={tmp_path / 'wow'}")
    edit = "It lies up there, I was told."
    with ChatServer(answer=lambda *_: edit, models=(MODEL,)) as served:
        construct_here(*editing(served, tmp_path / "run", *more, "pipeline.which=detector", "pipeline.candidates=1"))
    found, checked = (step_rows(tmp_path / "run", name) for name in ("find", "check"))
    kept = [row for row in found if "failure" not in row]
    assert len(served.asked) == len(kept) == len([row for row in checked if "failure" not in row])
    assert {row["failure"]["why"] for row in found if "failure" in row} <= {"not hallucinated"}
    for row in checked:
        assert "failure" in row or ("hallucinated" in row["faults"]) == (row["verdict"] == "hallucinated")
    assert len(sheet(tmp_path / "run" / SHEET)) == len(kept)
    assert steps(tmp_path / "run")["check"]["settings"]["detector"][0][1], "the hash of the weights"


KNOWLEDGE = "The lake of Orvel is ninety metres deep and lies on a plateau."


def row(key: str, proposal: str, **values: Any) -> dict[str, Any]:
    fields = {"dialogue": "d", "knowledge": KNOWLEDGE, "history": [["seeker", "Hi?"]], "response": "I swim in it."}
    return {"key": key, **fields, "proposal": proposal, **values}


@given(*[st.lists(st.sampled_from("abcd"), max_size=12)] * 2)
def test_the_longest_run_is_that_of_comparing_all_runs(first: list[str], second: list[str]) -> None:
    def runs(words: list[str]) -> set[tuple[str, ...]]:
        return {tuple(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}

    assert longest_run(first, second) == max(map(len, runs(first) & runs(second)), default=0)


def test_the_best_candidate_has_fewest_faults_then_the_lowest_score_then_the_shortest_copy() -> None:
    def of(key: str, *texts: tuple[list[str], float | None, int]) -> list[dict[str, Any]]:
        names = ("a", "b", "c")
        return [
            row(f"{key}@{name}", f"{name}!", faults=faults, score=score, verdict=FAITHFUL, copied_words=copied)
            for name, (faults, score, copied) in zip(names, texts, strict=True)
        ]

    fewest = of("1@x", (["copies"], 0.0, 9), ([], 0.9, 5), ([], 0.2, 6))
    shortest = of("2", ([], 0.2, 5), ([], 0.2, 3), ([], 0.2, 3))
    failures = {name: {"step": f"propose-{name}", "why": "refusal", "tries": 1} for name in "abc"}
    none = [{"key": f"3@{name}", "failure": failure} for name, failure in failures.items()]
    found = list(best_proposals([*fewest, *shortest, *none], ["a", "b", "c"]))
    assert [(one["key"], one.get("candidate")) for one in found] == [("1@x", "c"), ("2", "b"), ("3", None)]
    assert found[2]["failed"] == [f"propose-{name}: refusal" for name in "abc"]
