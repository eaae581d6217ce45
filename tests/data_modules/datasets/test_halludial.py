"""HalluDial's responses with their judgements, in both scenarios."""

from pathlib import Path

import pytest

from faithkit.errors import UserError
from tests.data_modules.official.dialogues import APPRENTICE, WIZARD
from tests.data_modules.official.judgements import HALLUDIAL
from tests.data_modules.official_rows import labels, make, read, write


def corpus(folder: Path) -> Path:
    for scenario in ("spontaneous", "induced"):
        for split in ("train", "test"):
            write(folder / "data" / scenario / f"{scenario}_{split}.json", HALLUDIAL)
    return folder


def test_a_row_is_a_response_with_its_dialogue_and_its_judgement(tmp_path: Path) -> None:
    examples, counts = read(make("halludial", corpus(tmp_path), scenario="induced"))
    first, second, third = examples
    assert (first.label, second.label, third.label) == ("faithful", "hallucinated", "faithful")
    assert second.target == 'Yes. "full of trout" is not in the knowledge.' and first.target == "No."
    assert [(turn.speaker, turn.text) for turn in first.history] == [
        ("seeker", "Do you know any lakes?"),
        ("wizard", "Lake Orvel."),
        ("seeker", "What is it like?"),
    ]
    assert first.meta == {"turn": 1, "scenario": "induced"}
    assert (first.group, third.group) == ("3", "5")
    assert [example.id for example in examples] == ["3:1", "3:1@induced_test:1", "5:1"]
    assert counts == {"kept": 3, "repeated id, made unique by its row": 1}


def test_both_scenarios_are_read_unless_one_is_chosen(tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    both = read(make("halludial", folder))[0]
    assert len(both) == 6 and len({example.id for example in both}) == 6
    assert {example.meta["scenario"] for example in both} == {"spontaneous", "induced"}
    for path in (folder, folder / "data", folder / "data" / "spontaneous"):
        chosen = read(make("halludial", path, scenario="spontaneous"))[0]
        assert [example.meta["scenario"] for example in chosen] == ["spontaneous"] * 3
    with pytest.raises(UserError, match=r"no file of the induced scenario is here(.|\n)*scenario=both"):
        make("halludial", folder / "data" / "spontaneous", scenario="induced").files()


def test_both_files_can_be_divided_anew_by_dialogue(tmp_path: Path) -> None:
    source = make("halludial", corpus(tmp_path), official_split=False)
    assert source.split_names() == ["all"]
    assert labels(read(source)[0]) == {"faithful": 8, "hallucinated": 4}


@pytest.mark.parametrize(
    "target", ["None of it.", "Nobel won it.", "Yesterday it was.", "No-one said so.", "Maybe", " "]
)
def test_a_target_without_a_verdict_is_a_bad_row(tmp_path: Path, target: str) -> None:
    file = write(tmp_path / "induced_test.json", [*HALLUDIAL, {**HALLUDIAL[0], "target": target}])
    with pytest.raises(UserError, match=r"field 'target' (is .*; known: what begins with Yes or No|is empty)"):
        read(make("halludial", file))
    examples, counts = read(make("halludial", file), on_bad_row="skip")
    assert len(examples) == 3 and counts["rejected: bad row"] == 1


@pytest.mark.parametrize(
    ("target", "label"), [("Yes", "hallucinated"), ("no: fine", "faithful"), ("\nNo.", "faithful")]
)
def test_a_verdict_is_a_whole_word(tmp_path: Path, target: str, label: str) -> None:
    file = write(tmp_path / "induced_test.json", [{**HALLUDIAL[0], "target": target}])
    assert read(make("halludial", file))[0][0].label == label


def test_topics_are_those_of_wows_dialogues(tmp_path: Path) -> None:
    hills = {**HALLUDIAL[0], "dialogue_history": "[Human]: And hills?"}
    other = {**hills, "dialogue_id": 9, "knowledge": "Mount Sel is high."}
    unknown = {**hills, "dialogue_id": 11, "knowledge": "Nothing of it."}
    file = write(tmp_path / "spontaneous_test.json", [HALLUDIAL[0], other, unknown])
    openings = [("Lakes", "do you know any lakes ?", "A"), ("Hills", "Tell me.", "Mount Sel is high .")]
    openings += [("Bread", "And hills?", "B"), ("Games", "and hills?", "C")]  # two topics: it decides nothing
    dialogues = []
    for topic, opening, knowledge in openings:
        wizard = {**WIZARD, "text": "Indeed.", "checked_sentence": {"k": knowledge}}
        dialogues.append({"chosen_topic": topic, "dialog": [{**APPRENTICE, "text": opening}, wizard]})
    write(tmp_path / "wow" / "train.json", dialogues)
    source = make("halludial", file, topics_path=str(tmp_path / "wow"))
    examples, counts = read(source)
    assert [example.meta.get("topic") for example in examples] == ["Lakes", "Hills", None]
    assert counts == {"kept": 3, "rows without a topic in topics_path": 1}
    assert tmp_path / "wow" / "train.json" in source.files()["test"]  # the cache depends on it
    assert all("topic" not in example.meta for example in read(make("halludial", file))[0])
