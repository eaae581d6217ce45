"""The sets of everyday answers: complete, consistent, without leaks in opening words; a dataset split by author."""

import re
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from critic.support.detector import SupportDetector
from data_modules.build import build_source, read_block
from data_modules.datasets.everyday import ERRORS, FOLDER, Everyday
from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl
from faithkit.provenance.used_model import find_leaks
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


CONTEXTS = {"development": ("dev", 65), "test": ("test", 33)}  # prefix of the ids and number of contexts
CONTEXTS |= {"fitting": ("fit", 76), "fitting_2": ("fita", 75), "other_forms": ("fitc", 96)}
CONTEXTS |= {"values": ("val", 60), "test_2": ("tst", 36)}
WORDS = {"fitting_2": (50, 182), "other_forms": (42, 180)}  # of a context, where not 50 to 180
STYLES = {"product", "medicine", "news", "hr", "legal"}
FORMS = {"dialogue", "summary", "passages"}
STYLES_OF = {"other_forms": FORMS, "values": STYLES | FORMS - {"summary"} | {"table"}}
RAREST = {"values": 6}  # of the types of errors, where not 25
TEXTS = ("knowledge", "question", "response")


SETS = {name: list(read_jsonl(FOLDER / f"{name}.jsonl")) for name in CONTEXTS}
each_set = pytest.mark.parametrize(("name", "rows"), SETS.items(), ids=SETS)


@each_set
def test_every_style_and_error_is_frequent_and_nothing_else_tells_the_label(name: str, rows: list[Any]) -> None:
    styles = Counter(row["style"] for row in rows)
    errors = Counter(row["error"] for row in rows if row["label"] == "hallucinated")
    assert set(styles) == STYLES_OF.get(name, STYLES) and min(styles.values()) >= 80
    assert set(errors) == set(ERRORS) and min(errors.values()) >= RAREST.get(name, 25)
    assert 0.45 <= sum(errors.values()) / len(rows) <= 0.55
    least = 0.3 if name == "other_forms" else 0.4
    for opening in ("Yes", "No"):
        labels = Counter(row["label"] for row in rows if re.match(rf"{opening}\b", row["response"]))
        assert least <= labels["faithful"] / labels.total() <= 1 - least


@each_set
def test_spans_mark_text_of_exactly_the_hallucinated_responses(name: str, rows: list[Any]) -> None:
    for row in rows:
        faithful = row["label"] == "faithful"
        assert (row["error"] is None) == (not row["spans"]) == faithful, row["id"]
        ends = [0, *(span["end"] for span in row["spans"])]
        for before, span in zip(ends, row["spans"], strict=False):
            marked = row["response"][span["start"] : span["end"]]
            assert before <= span["start"] and span["end"] <= len(row["response"]), row["id"]
            assert marked and marked == marked.strip(), row["id"]


@each_set
def test_rows_are_unique_and_groups_share_one_context(name: str, rows: list[Any]) -> None:
    prefix, contexts = CONTEXTS[name]
    shortest, longest = WORDS.get(name, (50, 180))
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["group"]].append(row)
        assert all(row[text] == row[text].strip() for text in TEXTS) and row["knowledge"] and row["response"], row["id"]
        assert row["question"] or (name, row["style"]) == ("other_forms", "summary"), row["id"]
        assert re.fullmatch(rf"{prefix}-{row['style']}-\d\d", row["group"]), row["id"]
        assert re.fullmatch(rf"{row['group']}-\d\d", row["id"])
    assert len({row["id"] for row in rows}) == len(rows) == len({(row["group"], row["response"]) for row in rows})
    assert len({row["knowledge"] for row in rows}) == len(groups) == contexts
    for members in groups.values():
        assert len({row["knowledge"] for row in members}) == 1
        assert {row["label"] for row in members} == {"faithful", "hallucinated"}
        assert shortest <= len(members[0]["knowledge"].split()) <= longest


def test_the_sets_share_no_text() -> None:
    for first, second in combinations(SETS.values(), 2):
        for text in ("id", "knowledge"):
            assert not {row[text] for row in first} & {row[text] for row in second}
