"""The sets of everyday answers are complete, consistent and without leaks in opening words."""

import re
from collections import Counter, defaultdict
from itertools import combinations
from typing import Any

import pytest

from faithkit.files.jsonl import read_jsonl
from tests.running import ROOT

FOLDER = ROOT / "data_modules" / "everyday_answers"
CONTEXTS = {"development": ("dev", 65), "test": ("test", 33)}  # prefix of the ids and number of contexts
CONTEXTS |= {"fitting": ("fit", 76), "fitting_2": ("fita", 75), "other_forms": ("fitc", 96)}
CONTEXTS |= {"values": ("val", 60), "test_2": ("tst", 36)}
WORDS = {"fitting_2": (50, 182), "other_forms": (42, 180)}  # of a context, where not 50 to 180
STYLES = {"product", "medicine", "news", "hr", "legal"}
FORMS = {"dialogue", "summary", "passages"}
STYLES_OF = {"other_forms": FORMS, "values": STYLES | FORMS - {"summary"} | {"table"}}
RAREST = {"values": 6}  # of the types of errors, where not 25
ERRORS = {"number", "date", "unit", "entity", "role", "negation", "contradiction", "addition"}
TEXTS = ("knowledge", "question", "response")


SETS = {name: list(read_jsonl(FOLDER / f"{name}.jsonl")) for name in CONTEXTS}
each_set = pytest.mark.parametrize(("name", "rows"), SETS.items(), ids=SETS)


@each_set
def test_every_style_and_error_is_frequent_and_nothing_else_tells_the_label(name: str, rows: list[Any]) -> None:
    styles = Counter(row["style"] for row in rows)
    errors = Counter(row["error"] for row in rows if row["label"] == "hallucinated")
    assert set(styles) == STYLES_OF.get(name, STYLES) and min(styles.values()) >= 80
    assert set(errors) == ERRORS and min(errors.values()) >= RAREST.get(name, 25)
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
