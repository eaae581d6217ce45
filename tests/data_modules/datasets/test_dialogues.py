"""FaithDial and Wizard of Wikipedia: turns, tags and labels; FaithCritic: its rule, and the released one's faults."""

import copy
from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from tests.data_modules.official import LAKE
from tests.data_modules.official.dialogues import CASES, FAITHDIAL, HISTORY, WOW, WOW_PARLAI, utterance
from tests.data_modules.official_rows import labels, make, read, read_around_a_bad_row, write

TURN = utterance(HISTORY, "It is deep.", None, ["Entailment"])


def dialogue(folder: Path, *turns: Any, **row: Any) -> Path:
    return write(folder / "test.json", [{"dialog_idx": 1, "utterances": list(turns), **row}])


def test_edited_turns_are_faithful_and_unedited_ones_are_what_their_tags_say(tmp_path: Path) -> None:
    examples, counts = read(make("faithdial", write(tmp_path / "valid.json", FAITHDIAL)))
    found = {example.id: example.label for example in examples}
    assert list(found) == [f"{dialogue}:{turn}" for dialogue in (4, 7) for turn in range(4)]
    # The original of 7:2 differs by a space alone: it is not edited, and generic says nothing.
    others = {"4:3": "hallucinated", "7:2": None}
    assert all(label == others.get(turn, "faithful") for turn, label in found.items())
    assert counts == {**CASES, "kept": 8}
    example = examples[1]
    assert (example.split, example.group, example.knowledge) == ("validation", "4", LAKE)
    turns = [(turn.speaker, turn.text) for turn in example.history]
    assert turns == [("seeker", HISTORY[0]), ("wizard", "It is."), ("seeker", "How deep?")]
    assert example.response == example.reference == "The deepest up there."
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
    examples = read_around_a_bad_row("faithdial", path, f"utterance 1: .*{message}")
    assert [example.id for example in examples] == ["1:0", "1:2"]


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
    original, edited, *_ = read(make("faithcritic", path))[0]
    assert original.group == edited.group == "4" and original.history == edited.history == ()
    assert (original.reference, original.original) == (edited.response, None)
    assert (edited.reference, edited.original) == (None, original.response)
    assert original.meta == {"case": "edited, hallucinated"}


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


def test_files_of_the_other_corpus_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no usable example .*dropped: untagged 2"):
        read(make("faithcritic", write(tmp_path / "test.json", WOW)))
    with pytest.raises(UserError, match=r"this is FaithDial, not WoW\n.*\n  hint: use data=faithdial"):
        read(make("wow", write(tmp_path / "train.json", FAITHDIAL)))


def test_faithdials_layout(tmp_path: Path) -> None:
    examples, counts = read(make("wow", write(tmp_path / "wow_valid.json", WOW)))
    shown = [(example.id, example.split, example.group) for example in examples]
    assert shown == [("0:0", "validation", "0"), ("1:0", "validation", "1")] and labels(examples) == {None: 2}
    assert [turn.speaker for turn in examples[1].history] == ["wizard", "seeker"]
    assert examples[0].reference == examples[0].response == "Lake Orvel, of course."
    assert counts == {"layout: FaithDial": 2, "kept": 2}


def test_parlais_layout(tmp_path: Path) -> None:
    examples, counts = read(make("wow", write(tmp_path / "test_random_split.json", WOW_PARLAI)))
    (example,) = examples
    assert (example.id, example.split, example.group) == ("test_random_split:0:2", "test", "test_random_split:0")
    assert (example.knowledge, example.response, example.reference) == (LAKE, "Orvel is.", "Orvel is.")
    asked = [(turn.speaker, turn.text) for turn in example.history]
    assert asked == [("wizard", "Lakes are fine."), ("seeker", "Which one is deep?")]
    assert (example.label, example.meta) == (None, {"topic": "Lake Orvel"})
    assert counts == {"layout: ParlAI": 1, "dropped: no knowledge used": 2, "kept": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"speaker": None}, "turn 2: field 'speaker' must be text"),
        ({"text": ""}, "turn 2: field 'text' is empty"),
        ({"checked_sentence": [LAKE]}, "turn 2: field 'checked_sentence' must be an object"),
        ({"checked_sentence": {"self_x_0": 3}}, "turn 2: field 'checked_sentence' must be text, got 3"),
    ],
)
def test_a_bad_turn_spoils_its_dialogue(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rows = [*copy.deepcopy(WOW_PARLAI), *WOW_PARLAI]
    rows[0]["dialog"][2].update(change)
    examples = read_around_a_bad_row("wow", write(tmp_path / "train.json", rows), message)
    assert [example.id for example in examples] == ["train:1:2"]
