"""Candidates of an edit: how much they copy, which is the best, and what people may answer."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from construction.official_layouts import write_faithdial
from construction.sheet import write_sheet
from faithkit.records import FAITHFUL, HALLUCINATED, Prediction
from faithkit.token_overlap import longest_run
from faithkit_workflows.pipelines.faithdial_edit import (
    COLUMNS,
    best_proposals,
    check_candidate,
    read_answers,
    sheet_cells,
)

KNOWLEDGE = "The lake of Orvel is ninety metres deep and lies on a plateau."


def row(key: str, proposal: str, **values: Any) -> dict[str, Any]:
    fields = {"dialogue": "d", "knowledge": KNOWLEDGE, "history": [["seeker", "Hi?"]], "response": "I swim in it."}
    return {"key": key, **fields, "proposal": proposal, **values}


@given(*[st.lists(st.sampled_from("abcd"), max_size=12)] * 2)
def test_the_longest_run_is_that_of_comparing_all_runs(first: list[str], second: list[str]) -> None:
    def runs(words: list[str]) -> set[tuple[str, ...]]:
        return {tuple(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}

    assert longest_run(first, second) == max(map(len, runs(first) & runs(second)), default=0)


@pytest.mark.parametrize(
    ("text", "label", "faults"),
    [
        ("I swim in it!", FAITHFUL, ["unchanged"]),
        ("It is ninety metres deep and lies on it.", FAITHFUL, ["copies"]),
        ("It is ninety metres deep and more.", FAITHFUL, []),
        ("It is small.", HALLUCINATED, ["hallucinated"]),
        ("It is deep.", None, ["no verdict"]),
    ],
)
def test_a_candidate_is_checked(text: str, label: str | None, faults: list[str]) -> None:
    prediction = Prediction(id="1", label=label, score=None)
    assert check_candidate(row("1", text), prediction, max_copied_words=6)["faults"] == faults


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


def test_answers_come_back_from_the_table_and_stay_in_it(tmp_path: Path) -> None:
    path, shown = tmp_path / "proposals.csv", [row(str(i), f"Edit {i}.", faults=[], copied_words=0) for i in range(4)]
    originals = {one["key"]: one["response"] for one in shown}
    known = {"0": "Edit 0.", "1": "Mine.", "2": None}
    write_sheet(path, COLUMNS, (sheet_cells(one, known) for one in shown))
    answers, strange = read_answers(path, originals)
    assert answers == known and not strange
    assert read_answers(path, {"0": "another reply"}) == ({}, 3)


def test_an_accepted_text_changes_later_histories_of_its_dialogue_alone(tmp_path: Path) -> None:
    later = row(
        "d:1", "", response="It is blue.", history=[["seeker", "Hi?"], ["wizard", "I swim in it."], ["seeker", "So?"]]
    )
    other = {**later, "key": "e:1", "dialogue": "e"}
    rows = [row("d:0", ""), later, other]
    counts = write_faithdial(tmp_path, "validation", rows, {"d:0": "One can swim.", "d:1": "Deep.", "e:1": "Very."})
    assert counts == {"accepted edits": 3, "of them behind an edited turn": 1}
    written = (tmp_path / "valid.json").read_text()
    assert written.count("One can swim.") == 2 and written.count("I swim in it.") == 2
    assert write_faithdial(tmp_path, "validation", rows, {}) == {} and not (tmp_path / "valid.json").exists()
