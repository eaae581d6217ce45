"""FaithCritic: every case of the rule, the released rule's two faults, and their corrections."""

from pathlib import Path

import pytest

from faithkit.errors import UserError
from tests.data_modules.official.dialogues import FAITHDIAL, WOW
from tests.data_modules.official_rows import labels, make, read, write


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
