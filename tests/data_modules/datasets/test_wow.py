"""Wizard of Wikipedia in both layouts."""

import copy
from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from tests.data_modules.official import LAKE
from tests.data_modules.official.dialogues import FAITHDIAL, WOW, WOW_PARLAI
from tests.data_modules.official_rows import labels, make, read, write


def test_faithdials_layout(tmp_path: Path) -> None:
    examples, counts = read(make("wow", write(tmp_path / "wow_valid.json", WOW)))
    assert [(example.id, example.split, example.group) for example in examples] == [
        ("0:0", "validation", "0"),
        ("1:0", "validation", "1"),
    ]
    assert labels(examples) == {None: 2}
    assert [turn.speaker for turn in examples[1].history] == ["wizard", "seeker"]
    assert examples[0].reference == examples[0].response == "Lake Orvel, of course."
    assert counts == {"layout: FaithDial": 2, "kept": 2}


def test_parlais_layout(tmp_path: Path) -> None:
    examples, counts = read(make("wow", write(tmp_path / "test_random_split.json", WOW_PARLAI)))
    (example,) = examples
    assert (example.id, example.split, example.group) == ("test_random_split:0:2", "test", "test_random_split:0")
    assert (example.knowledge, example.response, example.reference) == (LAKE, "Orvel is.", "Orvel is.")
    assert [(turn.speaker, turn.text) for turn in example.history] == [
        ("wizard", "Lakes are fine."),
        ("seeker", "Which one is deep?"),
    ]
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
    path = write(tmp_path / "train.json", rows)
    with pytest.raises(UserError, match=message):
        read(make("wow", path))
    assert [example.id for example in read(make("wow", path), on_bad_row="skip")[0]] == ["train:1:2"]


def test_faithdials_own_files_are_not_taken_for_wow(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"this is FaithDial, not WoW\n.*\n  hint: use data=faithdial"):
        read(make("wow", write(tmp_path / "train.json", FAITHDIAL)))
