"""FaithDial: turns, tags and labels."""

from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from tests.data_modules.official.common import LAKE
from tests.data_modules.official.dialogues import CASES, FAITHDIAL, HISTORY, utterance
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
