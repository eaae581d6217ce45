"""Groups stay in one split, and texts in two splits are found, also if they differ by a word."""

from collections.abc import Iterator

import numpy as np
import pytest

from construction.steps import Division, TextInSplit, find_shared_texts
from data_modules.splits import divide_groups
from faithkit.provenance.row_keys import group_hash

LONG = "The lighthouse at Marrow Point was built in 1871 from granite that came by ship from the north"


def texts() -> Iterator[TextInSplit]:
    yield TextInSplit("train", "a", LONG)
    yield TextInSplit("train", "b", "Oat bread keeps longer than wheat bread because oats hold more water")
    yield TextInSplit("test", "c", LONG.replace("from the north", "from the south"))
    yield TextInSplit("test", "d", "oat bread keeps longer than wheat bread, because oats hold more water!")
    yield TextInSplit("test", "e", "Something else that no other text contains")


def test_equal_and_nearly_equal_texts_are_counted_apart() -> None:
    found = find_shared_texts(texts, 0.7)
    pairs = found.pop("pairs")
    assert list(found.values()) == [3, 1, 1]
    assert [(pair["train"], pair["held_out"]) for pair in pairs] == [("a", "c")]
    assert list(find_shared_texts(texts, None).values()) == [3, 1, []]


def test_a_group_has_one_split_by_its_name_and_the_seed_alone() -> None:
    division = Division({"test": 0.4}, seed=3)
    splits = [division.split_of(str(group)) for group in range(2000)]
    assert splits == [Division({"test": 0.4}, seed=3).split_of(str(group)) for group in range(2000)]
    assert 0.36 < splits.count("test") / 2000 < 0.44


@pytest.mark.parametrize("seed", range(4))
def test_a_training_of_the_same_seed_finds_validation_rows_in_the_training_split(seed: int) -> None:
    division = Division({"test": 0.4}, seed)
    kept = [group for group in map(str, range(2000)) if division.split_of(group) == "train"]
    assert len(kept) == pytest.approx(1200, abs=100)
    hashes = np.array([group_hash(group) for group in kept], np.uint64)
    shares = divide_groups(hashes, {"validation": 0.1}, seed)
    assert len(shares["validation"]) == pytest.approx(120, abs=45)
