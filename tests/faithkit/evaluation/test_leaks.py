"""Which test rows a model has seen."""

from typing import Any

from faithkit.evaluation.leaks import find_leaks
from faithkit.files.seen_rows import CALIBRATED, CHOSEN, TRAINED, SeenRows
from faithkit.records import Example
from faithkit.row_keys import row_keys


def row(number: int, group: str, knowledge: str, split: str = "test") -> Example:
    texts = {"knowledge": knowledge, "response": f"Response {number}."}
    return Example(id=f"{group}:{number}", source="wow", split=split, group=group, **texts)


TEST = [row(0, "a", "Stone."), row(1, "a", "Water."), row(2, "b", "Bread."), row(3, "c", "Bread."), row(4, "d", "Ink.")]


def found(**uses: list[Example]) -> tuple[dict[str, Any], list[int]]:
    leaks = find_leaks(TEST, SeenRows.of({use: [row_keys(examples)] for use, examples in uses.items()}))
    return leaks.to_dict(), leaks.rows.nonzero()[0].tolist()


def test_nothing_leaks_from_other_rows() -> None:
    counts, rows = found(trained=[row(0, "x", "Gold.")], chosen=[row(1, "a", "Silver.", split="train")])
    nothing = {"rows": 0, "knowledge": 0, "groups": 0}
    assert counts == {
        "of": {"rows": 5, "knowledge": 4, "groups": 4},
        **dict.fromkeys((TRAINED, CHOSEN, CALIBRATED), nothing),
    }
    assert rows == []


def test_a_row_takes_its_group_along() -> None:
    counts, rows = found(trained=[row(0, "elsewhere", "STONE", split="train")])
    assert counts[TRAINED] == {"rows": 1, "knowledge": 1, "groups": 1} and rows == [0, 1]


def test_shared_knowledge_leaks_the_rows_that_have_it() -> None:
    counts, rows = found(chosen=[row(9, "elsewhere", "bread")])
    assert counts[CHOSEN] == {"rows": 0, "knowledge": 1, "groups": 0} and rows == [2, 3]
    assert counts[TRAINED] == counts[CALIBRATED] == {"rows": 0, "knowledge": 0, "groups": 0}


def test_another_turn_of_the_same_dialogue_leaks_the_dialogue() -> None:
    counts, rows = found(calibrated=[row(9, "a", "Silver.")])
    assert counts[CALIBRATED] == {"rows": 0, "knowledge": 0, "groups": 1} and rows == [0, 1]
