"""Wrappers change one thing of a dataset, and forward all else, through wrappers of wrappers too."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from data_modules.negatives.make import NegativesSource
from data_modules.reading.dataset import ExcludingSource, Source, WrappedSource, read_examples
from data_modules.reading.exclude import DROPPED, Excluded
from data_modules.reading.rows import ReadReport, Row
from data_modules.splits import PartSource, divide_groups
from faithkit.files.jsonl import write_jsonl
from faithkit.records import Example

# Of each attribute that a dataset declares a value that is not the default.
DECLARED: dict[str, Any] = {
    "name": "rare",
    "path": "set by the dataset",
    "default_split": "validation",
    "ids_repeat": True,
    "train_only": True,
    "generated": False,  # neither exclusion nor negatives nor division take a dataset that is generated
    "embedded_layout": "snli",
    "embedded_options": {"other_path": "audit"},
    "derived_from": "snli",
    "files_stand_alone": True,
    "options_for_all_rows": {"every": True},
    "option_values": {"every": (True, False)},
    "option_names": {"shades": ("red", "blue")},
}


@dataclass(frozen=True, kw_only=True)
class Rare(Source):
    """A dataset that declares everything otherwise than the default."""

    every: bool = False
    shades: str = "all"

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

    def excluding(self, excluded: Excluded) -> Source:
        return replace(self, every=True)


for attribute in DECLARED.keys() - {"path"}:
    setattr(Rare, attribute, DECLARED[attribute])


EXCLUDED = Excluded.of([Example(id="x", source="x", split="x", group="x", knowledge="Fact 3.", response="x")])
SHARES = {"validation": 0.3}
Wrap = Callable[[Source], Source]
WRAPPERS: dict[str, Wrap] = {
    "plain": WrappedSource,
    "excluding": lambda source: ExcludingSource(source, EXCLUDED),
    "part": lambda source: PartSource(source, "train", SHARES, 1),
    "negatives": lambda source: NegativesSource(source, kinds=["verbatim"]),
    "negatives of excluding": lambda source: NegativesSource(ExcludingSource(source, EXCLUDED), kinds=["verbatim"]),
    "part of excluding": lambda source: PartSource(ExcludingSource(source, EXCLUDED), "train", SHARES, 1),
}


@pytest.fixture
def rare(tmp_path: Path) -> Rare:
    for split in ("train", "validation"):
        write_jsonl(tmp_path / f"{split}.jsonl", ({"number": number} for number in range(40)))
    return Rare(path=str(tmp_path))


@pytest.mark.parametrize("attribute", sorted(Source.__annotations__))
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_wrappers_keep_every_declared_attribute(rare: Rare, wrap: Wrap, attribute: str) -> None:
    assert attribute in DECLARED, f"Source declares {attribute}: give {Rare.__name__} another value than its default"
    wanted = rare.path if attribute == "path" else DECLARED[attribute]
    assert getattr(wrap(rare), attribute) == getattr(rare, attribute) == wanted
    if attribute not in ("name", "path", "generated"):
        assert wanted != getattr(Source, attribute)


def test_records_pass_all_wrappers_and_the_dropped_are_counted(rare: Rare) -> None:
    report = ReadReport()
    kept = list(read_examples(WRAPPERS["part of excluding"](rare), "train", report))
    assert 0 < len(kept) < 38 and all(example.knowledge != "fact 3" for example in kept)
    assert report.counts[DROPPED] == 2 and report.counts["in another part of the division"] == 38 - len(kept)
    assert len({example.id for example in kept}) == len(kept), "repeated ids are made unique"
    groups = {example.group for example in kept}
    assert groups == {example.group for example in read_examples(rare, "train", ReadReport())} & groups


def test_a_part_holds_the_groups_that_the_division_gives_it(rare: Rare) -> None:
    import numpy as np

    from data_modules.encoding.encoding_cache import group_hash

    examples = list(read_examples(rare, "train", ReadReport()))
    rows = divide_groups(np.array([group_hash(e.group) for e in examples], np.uint64), SHARES, 1)
    for part in ("train", "validation"):
        found = read_examples(PartSource(rare, part, SHARES, 1), "train", ReadReport())
        assert [e.response for e in found] == [examples[row].response for row in rows[part]]


def test_wrappers_forward_every_method() -> None:
    methods = {name for name, value in vars(Source).items() if callable(value) and not name.startswith("_")}
    through_others = {"read_row", "read_from"}  # they call what a wrapper may override
    assert methods - set(vars(WrappedSource)) == through_others
