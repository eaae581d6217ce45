"""Finding files and reading splits."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.reading.dataset import GeneratedSource, read_examples, resolve_split
from data_modules.reading.fields import text_group
from data_modules.reading.files import find_files
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.records import Example
from tests.data_modules.official.inference import SNLI
from tests.data_modules.official.judged import BEGIN
from tests.data_modules.official_rows import make, read, write

PATTERNS = {"train": ["train.json"], "test": ["test.json", "extra_*.json"]}


def test_a_folder_is_searched_by_the_official_names(tmp_path: Path) -> None:
    for name in ("train.json", "extra_2.json", "extra_1.json", "other.json"):
        (tmp_path / name).touch()
    found = find_files(str(tmp_path), PATTERNS)
    assert {split: [file.name for file in files] for split, files in found.items()} == {
        "train": ["train.json"],
        "test": ["extra_1.json", "extra_2.json"],
    }


def test_the_first_layout_that_is_there_is_used_alone(tmp_path: Path) -> None:
    for name in ("new.json", "old.json"):
        (tmp_path / name).touch()
    found = find_files(str(tmp_path), {"test": ["new.json"]}, {"test": ["old.json"]})
    assert found == {"test": [tmp_path / "new.json"]}
    (tmp_path / "new.json").unlink()
    assert find_files(str(tmp_path), {"test": ["new.json"]}, {"test": ["old.json"]}) == {
        "test": [tmp_path / "old.json"]
    }


def test_the_folder_may_be_the_one_above(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "else").mkdir()
    (tmp_path / "corpus" / "train.json").touch()
    assert find_files(str(tmp_path), PATTERNS) == {"train": [tmp_path / "corpus" / "train.json"]}
    (tmp_path / "else" / "train.json").touch()
    with pytest.raises(UserError, match="several folders have such files: corpus, else"):
        find_files(str(tmp_path), PATTERNS)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "no such file"),
        (".", "looked for train.json, test.json, extra_.*here"),
        ("hub", "not read from the hub"),
    ],
)
def test_nothing_found_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        find_files(path, PATTERNS, address="here")


def test_without_a_split_it_is_test_or_the_only_one(tmp_path: Path) -> None:
    write(tmp_path / "snli_1.0_dev.jsonl", SNLI)
    assert resolve_split(make("snli", tmp_path), None) == "validation"
    write(tmp_path / "snli_1.0_train.jsonl", SNLI)
    with pytest.raises(UserError, match="choose from: train, validation"):
        resolve_split(make("snli", tmp_path), None)
    write(tmp_path / "snli_1.0_test.jsonl", SNLI)
    assert resolve_split(make("snli", tmp_path), None) == "test"
    with pytest.raises(UserError, match="has no split 'dev' here"):
        resolve_split(make("snli", tmp_path), "dev")


def test_num_rows_counts_what_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "begin_test_wow.tsv", [BEGIN[3], *BEGIN[:3]])
    source = make("begin", tmp_path)
    assert [example.id for example in read_examples(source, "test", ReadReport(), 2)] == [
        "begin_test_wow:1",
        "begin_test_wow:2",
    ]
    with pytest.raises(UserError, match="num_rows is 0"):
        list(read_examples(source, "test", ReadReport(), 0))


def test_nothing_left_says_what_became_of_the_rows(tmp_path: Path) -> None:
    write(tmp_path / "begin_test_wow.tsv", [BEGIN[3]])
    with pytest.raises(UserError, match=r"no usable example in split 'test' \(.*dropped: generic 1\)"):
        read(make("begin", tmp_path))


def test_a_dataset_without_files_makes_its_records() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Made(GeneratedSource):
        name: ClassVar[str] = "made"

        def sizes(self) -> dict[str, int]:
            return {"train": 5, "test": 3}

        def generate(self, split: str, start: int = 0, stop: int | None = None) -> Iterator[Example]:
            for number in range(start, stop or self.sizes()[split]):
                yield Example(id=str(number), source="made", split=split, group="g", knowledge="k", response="r")

    report, source = ReadReport(), Made(path="made")
    assert [(example.id, example.split) for example in read_examples(source, None, report, 2)] == [
        ("0", "test"),
        ("1", "test"),
    ]
    assert report.counts == {"kept": 2}
    assert len(list(read_examples(source, "train", ReadReport()))) == 5
    assert [example.id for example, _ in source.read_from(3, "train", ReadReport())] == ["3", "4"]
    with pytest.raises(UserError, match="made has no split 'dev' here"):
        list(read_examples(source, "dev", ReadReport()))


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_a_group_holds_both_forms_of_a_text_and_those_of_composed_texts_stay(text: str) -> None:
    composed, decomposed = normalize("NFC", text), normalize("NFD", text)
    assert text_group(text) == text_group(composed) == text_group(decomposed)
    kept = "".join(character for character in composed.lower() if character.isalnum()) or composed
    assert text_group(composed) == hashlib.blake2b(kept.encode(), digest_size=12).hexdigest()


def test_ascii_and_composed_texts_keep_the_groups_that_runs_were_divided_by() -> None:
    assert text_group("The river is long.") == "f450d41433878577d3161c54"
    assert text_group("Die Brücke führt über die Isar.") == "f2b6e3c1673363c04a5b48f0"


def test_a_repeated_id_is_a_bad_row_where_the_corpus_repeats_none(tmp_path: Path) -> None:
    row = {"dialog_idx": 1, "utterances": [{"history": ["x"], "knowledge": "k", "response": "r"}]}
    (tmp_path / "test.json").write_text(json.dumps([row, row]))
    with pytest.raises(UserError, match=r"id '1:0' was already given by .*line 1"):
        read(make("faithdial", tmp_path))
    examples, counts = read(make("faithdial", tmp_path), on_bad_row="skip")
    assert len(examples) == 1 and counts["rejected: bad row"] == 1
