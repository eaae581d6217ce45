"""Wrappers change one thing of a dataset, and forward all else, through wrappers of wrappers too."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from data_modules.reading.dataset import Source, WrappedSource, exclude_from, read_examples
from data_modules.reading.exclude import DROPPED, Excluded
from data_modules.reading.rows import ReadReport, Row
from data_modules.splits import divide_groups, part_of
from faithkit.files.jsonl import write_jsonl
from faithkit.records import Example


@dataclass(frozen=True, kw_only=True)
class Rare(Source):
    """A dataset that repeats ids and is for training alone, unlike the default."""

    name: ClassVar[str] = "rare"
    ids_repeat: ClassVar[bool] = True
    train_only: ClassVar[bool] = True

    def files(self) -> dict[str, list[Path]]:
        return {split: [Path(self.path) / f"{split}.jsonl"] for split in ("train", "validation")}

    def sizes(self) -> dict[str, int]:
        return {"train": 40, "validation": 40}

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        number = row.values["number"]
        group, knowledge = f"group {number % 20}", f"fact {number % 20}"
        yield Example(
            id=group, source=self.name, split=split, group=group, knowledge=knowledge, response=f"answer {number}"
        )


EXCLUDED = Excluded.of([Example(id="x", source="x", split="x", group="x", knowledge="Fact 3.", response="x")])
SHARES = {"validation": 0.3}


@pytest.fixture
def rare(tmp_path: Path) -> Rare:
    for split in ("train", "validation"):
        write_jsonl(tmp_path / f"{split}.jsonl", ({"number": number} for number in range(40)))
    return Rare(path=str(tmp_path))


def test_records_pass_all_wrappers_and_the_dropped_are_counted(rare: Rare) -> None:
    report, wrapped = ReadReport(), part_of(exclude_from(rare, EXCLUDED), "train", SHARES, 1)
    assert (wrapped.name, wrapped.path, wrapped.train_only) == ("rare", rare.path, True)
    kept = list(read_examples(wrapped, "train", report))
    assert 0 < len(kept) < 38 and all(example.knowledge != "fact 3" for example in kept)
    assert report.counts[DROPPED] == 2 and report.counts["in another part of the division"] == 38 - len(kept)
    assert len({example.id for example in kept}) == len(kept), "repeated ids are made unique"
    groups = {example.group for example in kept}
    assert groups == {example.group for example in read_examples(rare, "train", ReadReport())} & groups


def test_a_part_holds_the_groups_that_the_division_gives_it(rare: Rare) -> None:
    import numpy as np

    from faithkit.provenance.row_keys import group_hash

    examples = list(read_examples(rare, "train", ReadReport()))
    rows = divide_groups(np.array([group_hash(e.group) for e in examples], np.uint64), SHARES, 1)
    for part in ("train", "validation"):
        found = read_examples(part_of(rare, part, SHARES, 1), "train", ReadReport())
        assert [e.response for e in found] == [examples[row].response for row in rows[part]]


def test_wrappers_forward_every_method() -> None:
    methods = {name for name, value in vars(Source).items() if callable(value) and not name.startswith("_")}
    through_others = {"read_row", "read_from"}  # they call what a wrapper may override
    assert methods - set(vars(WrappedSource)) == through_others
