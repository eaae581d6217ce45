"""Users' spans."""

from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from tests.data_modules.official.common import LAKE
from tests.data_modules.official.spans import SPANS
from tests.data_modules.official_rows import make, read, write


def test_a_row_with_all_fields_and_one_with_the_least(tmp_path: Path) -> None:
    right, wrong = read(make("spans", write(tmp_path / "mine.jsonl", SPANS)))[0]
    assert (right.id, right.group, right.label, right.spans, right.split) == ("one", "g", "faithful", (), "all")
    assert right.history[0].text == "Is it?" and right.meta == {"model": "m"} and right.knowledge == LAKE
    assert (wrong.id, wrong.label, wrong.history, wrong.meta) == ("mine:1", "hallucinated", (), {})
    assert [(span.start, span.end, span.label) for span in wrong.spans or ()] == [
        (6, 11, "evident_conflict"),
        (6, 19, "hallucination"),
        (16, 19, "subtle_baseless"),
    ]


def test_rows_without_a_group_are_grouped_by_their_context(tmp_path: Path) -> None:
    rows = [{**SPANS[1], "context": context} for context in (LAKE, LAKE.upper(), "Another.")]
    groups = [example.group for example in read(make("spans", write(tmp_path / "mine.jsonl", rows)))[0]]
    assert groups[0] == groups[1] != groups[2]


def test_files_named_by_their_split(tmp_path: Path) -> None:
    for name in ("train.jsonl", "dev.jsonl", "test.jsonl"):
        write(tmp_path / name, SPANS)
    assert list(make("spans", tmp_path).files()) == ["train", "validation", "test"]
    assert read(make("spans", tmp_path))[0][0].split == "test"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spans": [{"start": 0, "end": 30}]}, r"spans\[0\]: field 'end' is 30, but the answer has 11 characters"),
        ({"spans": [{"start": 3, "end": 3}]}, "the span holds nothing"),
        ({"spans": [{"start": 3, "end": 2}]}, "behind its 'end'"),
        ({"spans": [{"start": 0, "end": 2, "text": "is"}]}, "field 'text' is 'is', but the answer has 'It' at 0 to 2"),
        ({"spans": [{"start": 0, "end": 2, "label": "wrong"}]}, "field 'label' is 'wrong'; known: 'evident_conflict'"),
        ({"spans": [{"end": 2}]}, "field 'start' must be a whole number"),
        ({"spans": None}, "field 'spans' must be a list"),
        ({"answer": " "}, "field 'answer' is empty"),
        ({"context": ""}, "field 'context' is empty"),
        ({"id": "one"}, "id 'one' was already given by"),
    ],
)
def test_a_row_that_cannot_be_right(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    source = make("spans", write(tmp_path / "mine.jsonl", [SPANS[0], {**SPANS[0], "id": "two", **change}]))
    with pytest.raises(UserError, match=message) as caught:
        read(source)
    assert "mine.jsonl, line 2" in str(caught.value) or "id 'one'" in message
    assert len(read(source, on_bad_row="skip")[0]) == 1
