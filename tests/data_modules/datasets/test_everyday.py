"""Everyday answers as a dataset: splits by author, spans with the type of their error, and the hub's layout."""

from collections import Counter
from pathlib import Path

import pytest

from critic.support.detector import SupportDetector
from data_modules.build import build_source, read_block
from data_modules.datasets.everyday import ERRORS, FOLDER, Everyday
from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl
from faithkit.provenance.seen_rows import find_leaks
from faithkit.records import HALLUCINATED

SIZES = {"train": 6203, "validation": 1062, "test": 460, "test_2": 504}


@pytest.mark.parametrize("split", SIZES)
def test_a_split_has_the_rows_of_its_authors(split: str) -> None:
    examples = read_block({"dataset": "everyday", "split": split})
    assert len(examples) == SIZES[split]
    for example in examples:
        assert (example.label == HALLUCINATED) == bool(example.spans) == ("error" in example.meta)
        assert {span.label for span in example.spans} <= {example.meta.get("error")}
    errors = Counter(example.meta["error"] for example in examples if example.spans)
    assert set(errors) == set(ERRORS)


def test_default_has_seen_all_but_the_test_split() -> None:
    seen = SupportDetector.describe("").seen
    assert seen is not None and not seen.unknown_bases
    for split, is_seen in {"train": True, "validation": True, "test": False, "test_2": False}.items():
        examples = read_block({"dataset": "everyday", "split": split})
        assert find_leaks(examples, seen).rows.all() == is_seen == find_leaks(examples, seen).rows.any()


def test_the_folder_is_read_by_datasets(tmp_path: Path) -> None:
    import datasets

    found = datasets.load_dataset(str(FOLDER), cache_dir=str(tmp_path))
    assert {name: len(rows) for name, rows in found.items()} == SIZES
    assert found["test"]["response"] == [row["response"] for row in read_jsonl(FOLDER / "test.jsonl")]


def test_an_unknown_error_is_named_with_its_line(tmp_path: Path) -> None:
    text = (FOLDER / "test.jsonl").read_text(encoding="utf-8").replace('"error": "role"', '"error": "tone"')
    (tmp_path / "test.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="tone") as raised:
        read_block({"dataset": "everyday", "path": str(tmp_path)})
    assert "line" in str(raised.value.place)
    assert isinstance(build_source("everyday"), Everyday)
