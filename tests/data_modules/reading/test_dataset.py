"""Finding files and reading splits; wrappers change one thing of a dataset and forward all else."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from unicodedata import normalize

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.reading.dataset import (
    Source,
    WrappedSource,
    draw_examples,
    exclude_from,
    read_drawn_examples,
    read_examples,
    resolve_split,
)
from data_modules.reading.exclude import DROPPED, Excluded
from data_modules.reading.fields import text_group
from data_modules.reading.files import find_files
from data_modules.reading.rows import ReadReport, Row
from data_modules.splits import divide_groups, part_of
from faithkit.errors import UserError
from faithkit.files.jsonl import write_jsonl
from faithkit.provenance.row_keys import group_hash
from faithkit.records import Example
from tests.data_modules.examples import example
from tests.data_modules.official.dialogues import FAITHDIAL
from tests.data_modules.official.inference import SNLI
from tests.data_modules.official.judged import BEGIN
from tests.data_modules.official_rows import make, read, write, write_case


def test_the_folder_may_be_the_one_above(tmp_path: Path) -> None:
    patterns = {"train": ["train.json"], "test": ["test.json", "extra_*.json"]}
    path = write(tmp_path / "corpus" / "train.json", FAITHDIAL)
    assert find_files(str(tmp_path), patterns) == {"train": [path]}
    write(tmp_path / "else" / "train.json", FAITHDIAL)
    with pytest.raises(UserError, match="several folders have such files: corpus, else"):
        find_files(str(tmp_path), patterns)


def test_without_a_split_it_is_test_or_the_only_one(tmp_path: Path) -> None:
    write(tmp_path / "snli_1.0_dev.jsonl", SNLI)
    assert resolve_split(make("snli", tmp_path), None) == "validation"
    write(tmp_path / "snli_1.0_train.jsonl", SNLI)
    with pytest.raises(UserError, match="choose from: train, validation"):
        resolve_split(make("snli", tmp_path), None)
    write(tmp_path / "snli_1.0_test.jsonl", SNLI)
    assert resolve_split(make("snli", tmp_path), None) == "test"
    folder = write(tmp_path / "faithdial" / "test.json", FAITHDIAL).parent
    with pytest.raises(UserError, match=r"choose from: test; or add train.json, from https://huggingface.co/"):
        resolve_split(make("faithdial", folder), "train")
    with pytest.raises(UserError, match="has no split 'dev' here"):
        resolve_split(make("snli", tmp_path), "dev")


def row(number: int, part: str, group: str) -> Example:
    texts = {"knowledge": "It is deep.", "response": "It is."}
    return Example(id=str(number), source="x", split="test", group=group, meta={"task": part}, **texts)


PARTS_OF_GROUPS = st.lists(st.tuples(st.sampled_from(["qa", "summary", "dialogue"]), st.integers(1, 6)), min_size=1)


@given(PARTS_OF_GROUPS, st.integers(1, 60), st.integers(0, 9), st.randoms())
def test_whole_groups_are_drawn_in_proportion(groups: Any, num_rows: int, seed: int, random: Random) -> None:
    members = [(part, f"g{number}") for number, (part, size) in enumerate(groups) for _ in range(size)]
    rows = [row(number, part, group) for number, (part, group) in enumerate(members)]
    drawn = draw_examples(rows, num_rows, seed)
    assert len(drawn) <= num_rows and drawn == sorted(drawn, key=lambda one: int(one.id))
    sizes, taken = Counter(one.group for one in rows), Counter(one.group for one in drawn)
    assert len(taken) == 1 or all(taken[group] == sizes[group] for group in taken), "no group is divided"
    assert len(drawn) == len(rows) or len(drawn) > num_rows - max(sizes.values()), "as many as fit"
    if all(taken[group] == sizes[group] for group in taken):
        random.shuffle(rows)
        assert {one.id for one in draw_examples(rows, num_rows, seed)} == {one.id for one in drawn}, "in any order"
    parts, found = (Counter(one.meta["task"] for one in some) for some in (rows, drawn))
    for part, total in parts.items():
        assert abs(found[part] - len(drawn) * total / len(rows)) <= 2 * max(sizes.values()), "each in proportion"


@pytest.mark.parametrize("parts", [["qa"] * 8, ["qa", *["summary"] * 7], list("abcdefgh")])
def test_another_seed_draws_other_rows(parts: list[str]) -> None:
    rows = [row(number, part, str(number)) for number, part in enumerate(parts)]
    drawn = Counter(draw_examples(rows, 1, seed)[0].id for seed in range(400))
    assert len(drawn) == 8 and min(drawn.values()) > 20, "every row is drawn by some seed"


def test_num_rows_counts_what_is_kept_and_not_drawn(tmp_path: Path) -> None:
    file = write(tmp_path / "begin_test_wow.tsv", [BEGIN[3], *BEGIN[:3]])
    source, report = make("begin", tmp_path), ReadReport()
    found = [one.id for one in read_drawn_examples(source, "test", report, num_rows=2, seed=0)]
    assert len(found) == 2 and set(found) < {f"begin_test_wow:{number}" for number in (1, 2, 3)}
    assert report.counts["kept"] == 2 and report.counts["dropped: not drawn (num_rows=2, seed=0)"] == 1
    with pytest.raises(UserError, match="num_rows is 0"):
        list(read_examples(source, "test", ReadReport(), 0))
    write(file, [BEGIN[3]])
    with pytest.raises(UserError, match=r"no usable example in split 'test' \(.*dropped: generic 1\)"):
        read(make("begin", tmp_path))


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_a_group_holds_both_forms_of_a_text_and_those_of_composed_texts_stay(text: str) -> None:
    composed, decomposed = normalize("NFC", text), normalize("NFD", text)
    assert text_group(text) == text_group(composed) == text_group(decomposed)
    kept = "".join(character for character in composed.lower() if character.isalnum()) or composed
    assert text_group(composed) == hashlib.blake2b(kept.encode(), digest_size=12).hexdigest()


def test_ascii_and_composed_texts_keep_the_groups_that_runs_were_divided_by() -> None:
    groups = {
        "The river is long.": "f450d41433878577d3161c54",
        "Die Brücke führt über die Isar.": "f2b6e3c1673363c04a5b48f0",
    }
    assert all(text_group(text) == group for text, group in groups.items())


def test_a_repeated_id_is_a_bad_row_where_the_corpus_repeats_none(tmp_path: Path) -> None:
    row = {"dialog_idx": 1, "utterances": [{"history": ["x"], "knowledge": "k", "response": "r"}]}
    write(tmp_path / "test.json", [row, row])
    with pytest.raises(UserError, match=r"id '1:0' was already given by .*line 2"):
        read(make("faithdial", tmp_path))
    examples, counts = read(make("faithdial", tmp_path), on_bad_row="skip")
    assert len(examples) == 1 and counts["rejected: bad row"] == 1


def test_the_files_that_a_release_lacks_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "faithkit"):
        for name, missing in {
            "begin": "begin_test_cmu.tsv, begin_test_tc.tsv; the official files: https://github.com/google/BEGIN",
            "halludial": "spontaneous_train.json, induced_train.json, induced_test.json; the official files: https",
        }.items():
            write_case(tmp_path / name, name)
            for _ in range(2):
                make(name, tmp_path / name).files()
            (message,) = caplog.messages
            assert f"not here: {missing}" in message
            caplog.clear()
        make("halludial", tmp_path / "halludial" / "spontaneous").files()
    assert not caplog.messages


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
        group, texts = f"group {number % 20}", {"knowledge": f"fact {number % 20}", "response": f"answer {number}"}
        yield Example(id=group, source=self.name, split=split, group=group, **texts)


EXCLUDED = Excluded.of([example(knowledge="Fact 3.")])
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
    examples = list(read_examples(rare, "train", ReadReport()))
    rows = divide_groups(np.array([group_hash(e.group) for e in examples], np.uint64), SHARES, 1)
    for part in ("train", "validation"):
        found = read_examples(part_of(rare, part, SHARES, 1), "train", ReadReport())
        assert [e.response for e in found] == [examples[row].response for row in rows[part]]


def test_wrappers_forward_every_method() -> None:
    methods = {name for name, value in vars(Source).items() if callable(value) and not name.startswith("_")}
    through_others = {"examples", "read_row", "read_from"}  # of the wrapped one, or they call what a wrapper overrides
    assert methods - set(vars(WrappedSource)) == through_others
