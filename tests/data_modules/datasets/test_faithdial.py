"""FaithDial: turns, tags and labels; FaithCritic: every case of its rule, and the faults of the released one."""

from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from tests.data_modules.official import LAKE
from tests.data_modules.official.dialogues import CASES, FAITHDIAL, HISTORY, WOW, utterance
from tests.data_modules.official_rows import labels, make, read, write

TURN = utterance(HISTORY, "It is deep.", None, ["Entailment"])


def dialogue(folder: Path, *turns: Any, **row: Any) -> Path:
    return write(folder / "test.json", [{"dialog_idx": 1, "utterances": list(turns), **row}])


def test_edited_turns_are_faithful_and_unedited_ones_are_what_their_tags_say(tmp_path: Path) -> None:
    examples, counts = read(make("faithdial", write(tmp_path / "valid.json", FAITHDIAL)))
    assert {example.id: example.label for example in examples} == {
        "4:0": "faithful",
        "4:1": "faithful",
        "4:2": "faithful",
        "4:3": "hallucinated",
        "7:0": "faithful",
        "7:1": "faithful",
        "7:2": None,  # the original differs by a space alone: not edited, and generic says nothing
        "7:3": "faithful",
    }
    assert counts == {**CASES, "kept": 8}


def test_a_record_holds_what_the_file_says(tmp_path: Path) -> None:
    example = read(make("faithdial", write(tmp_path / "valid.json", FAITHDIAL)))[0][1]
    assert (example.split, example.group, example.knowledge) == ("validation", "4", LAKE)
    assert [(turn.speaker, turn.text) for turn in example.history] == [
        ("seeker", HISTORY[0]),
        ("wizard", "It is."),
        ("seeker", "How deep?"),
    ]
    assert (example.response, example.reference) == ("The deepest up there.", "The deepest up there.")
    assert example.original == "Deepest, I think!"
    assert (example.tags, example.meta) == (("Entailment",), {"vrm": ["Edification"]})


def test_untagged_turns_have_no_label(tmp_path: Path) -> None:
    bare = {"history": HISTORY, "knowledge": LAKE, "response": "Deep."}
    path = dialogue(tmp_path, bare, utterance(HISTORY, "Deep.", "Deep!", None), {**TURN, "BEGIN": []})
    examples, counts = read(make("faithdial", path))
    assert labels(examples) == {None: 3}
    assert counts["case: unedited, untagged"] == 2 and counts["case: edited, untagged"] == 1


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        ({**TURN, "BEGIN": ["Entailed"]}, "'BEGIN' has 'Entailed'; known: hallucination"),
        ({**TURN, "BEGIN": "Entailment"}, "'BEGIN' must be a list"),
        ({**TURN, "history": ["a", 3]}, r"'history\[1\]' must be text, got 3"),
        ({**TURN, "original_response": 4}, "'original_response' must be text"),
        ("hello", "must be a JSON object, got 'hello'"),
    ],
)
def test_a_bad_turn_is_told_and_skipped_alone(tmp_path: Path, turn: Any, message: str) -> None:
    path = dialogue(tmp_path, TURN, turn, {**TURN, "response": "Deep."})
    with pytest.raises(UserError, match=f"utterance 1: .*{message}"):
        read(make("faithdial", path))
    examples, counts = read(make("faithdial", path), on_bad_row="skip")
    assert [example.id for example in examples] == ["1:0", "1:2"]
    assert counts["rejected: bad row"] == 1


def pairs(path: Path, **options: object) -> dict[str, tuple[str, str | None]]:
    return {example.id: (example.response, example.label) for example in read(make("faithcritic", path, **options))[0]}


def test_training_pairs_every_case(tmp_path: Path) -> None:
    path = write(tmp_path / "train.json", FAITHDIAL)
    assert pairs(path) == {
        "4:0:original": ("I swam in Lake Orvel once.", "hallucinated"),
        "4:0:edited": ("Lake Orvel is very deep.", "faithful"),
        "4:1:original": ("Deepest, I think!", "faithful"),
        "4:1:edited": ("The deepest up there.", "faithful"),
        "4:2:original": ("It is the deepest lake.", "faithful"),  # unedited: once
        "4:3:original": ("My uncle fishes there.", "hallucinated"),  # unedited: one label
        "7:0:original": ("It is deep, and cold.", "hallucinated"),  # partly
        "7:0:edited": ("It is deep.", "faithful"),
    }


@pytest.mark.parametrize("name", ["test.json", "valid.json", "test_random_split.json"])
def test_evaluation_holds_the_original_responses_alone(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, FAITHDIAL)
    assert all(example_id.endswith(":original") for example_id in pairs(path))
    assert labels(read(make("faithcritic", path))[0]) == {"hallucinated": 3, "faithful": 2}
    assert sum(example_id.endswith(":edited") for example_id in pairs(path, edited="all")) == 3


def test_the_released_rule_with_its_faults(tmp_path: Path) -> None:
    rows = [{**FAITHDIAL[0], "utterances": [{**u, "knowledge": " k "} for u in FAITHDIAL[0]["utterances"]]}]
    path = write(tmp_path / "train.json", rows)
    found = pairs(path, official=True)
    assert found["4:2:original"] == found["4:2:edited"] == ("It is the deepest lake.", "faithful")  # counted twice
    assert found["4:3:original"] == ("My uncle fishes there.", "hallucinated")  # both labels
    assert found["4:3:edited"] == ("My uncle fishes there.", "faithful")
    assert len(found) == 8
    assert {example.knowledge for example in read(make("faithcritic", path, official=True))[0]} == {"k"}
    assert {example.knowledge for example in read(make("faithcritic", path))[0]} == {" k "}
    test = write(tmp_path / "test.json", rows)
    assert pairs(test, official=True) == pairs(test)


def test_a_pair_keeps_its_group_and_the_other_text(tmp_path: Path) -> None:
    examples = read(make("faithcritic", write(tmp_path / "train.json", FAITHDIAL)))[0]
    original, edited = examples[0], examples[1]
    assert original.group == edited.group == "4"
    assert original.history == edited.history == ()
    assert (original.reference, original.original) == (edited.response, None)
    assert (edited.reference, edited.original) == (None, original.response)
    assert original.meta == {"case": "edited, hallucinated"}


def test_turns_that_nobody_judged_make_no_critic(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no usable example .*dropped: untagged 2"):
        read(make("faithcritic", write(tmp_path / "test.json", WOW)))
