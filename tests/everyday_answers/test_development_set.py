"""The development set of everyday answers is complete, consistent and without leaks in length or opening words."""

import re
from collections import Counter, defaultdict
from typing import Any

import pytest

from faithkit.files.jsonl import read_jsonl
from tests.running import ROOT

FILE = ROOT / "tests" / "everyday_answers" / "development.jsonl"
STYLES = {"product", "medicine", "news", "hr", "legal"}
ERRORS = {"number", "date", "unit", "entity", "role", "negation", "contradiction", "addition"}
TEXTS = ("knowledge", "question", "response")


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return list(read_jsonl(FILE))


def test_every_style_and_error_is_frequent_and_the_labels_are_balanced(rows: list[dict[str, Any]]) -> None:
    styles = Counter(row["style"] for row in rows)
    errors = Counter(row["error"] for row in rows if row["label"] == "hallucinated")
    assert set(styles) == STYLES and min(styles.values()) >= 80
    assert set(errors) == ERRORS and min(errors.values()) >= 27
    assert 0.45 <= sum(errors.values()) / len(rows) <= 0.55
    assert 0.2 <= sum(row["method"] == "rule" for row in rows) / len(rows) <= 0.4


def test_spans_mark_text_of_exactly_the_hallucinated_responses(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        faithful = row["label"] == "faithful"
        assert (row["error"] is None) == (not row["spans"]) == faithful, row["id"]
        ends = [0, *(span["end"] for span in row["spans"])]
        for before, span in zip(ends, row["spans"], strict=False):
            marked = row["response"][span["start"] : span["end"]]
            assert before <= span["start"] and span["end"] <= len(row["response"]), row["id"]
            assert marked and marked == marked.strip(), row["id"]


def test_rows_are_unique_and_groups_share_one_context(rows: list[dict[str, Any]]) -> None:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["group"]].append(row)
        assert all(row[name] and row[name] == row[name].strip() for name in TEXTS), row["id"]
        assert re.fullmatch(rf"dev-{row['style']}-\d\d", row["group"]), row["id"]
        assert re.fullmatch(rf"{row['group']}-\d\d", row["id"])
    assert len({row["id"] for row in rows}) == len(rows)
    assert len({(row["group"], row["response"]) for row in rows}) == len(rows)
    assert len({row["knowledge"] for row in rows}) == len(groups) == 65
    for members in groups.values():
        assert len({row["knowledge"] for row in members}) == 1
        assert {row["label"] for row in members} == {"faithful", "hallucinated"}
        assert 50 <= len(members[0]["knowledge"].split()) <= 180


@pytest.mark.parametrize("opening", ["Yes", "No"])
def test_the_opening_word_does_not_tell_the_label(rows: list[dict[str, Any]], opening: str) -> None:
    labels = Counter(row["label"] for row in rows if re.match(rf"{opening}\b", row["response"]))
    assert 0.4 <= labels["faithful"] / labels.total() <= 0.6
