"""Answers of several sentences with exact marks, as RAG corpora have them."""

from pathlib import Path

import pytest

from data_modules.embedded.layouts import WRITERS
from data_modules.embedded.layouts.span_layout import RagSource, rag_sources
from tests.data_modules.official_rows import make, read


@pytest.fixture(scope="module")
def sources() -> list[RagSource]:
    return list(rag_sources("train", 900, seed=0))


def test_what_an_answer_gets_wrong_is_not_in_its_source(sources: list[RagSource]) -> None:
    for source in sources:
        known = " ".join(source.passages)
        for answer in source.answers:
            for mark in answer.marks:
                text = answer.text[mark.start : mark.end]
                assert text.strip() == text != ""
                if mark.severity == "evident" and len(text) > 12:
                    assert text not in known


@pytest.mark.parametrize("name", ["ragtruth", "pairs"])
def test_loaders_give_the_marks_back(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path, {"train": 90, "test": 90}, seed=3)
    options = {"quality": "all"} if name == "ragtruth" else {}
    for split in ("train", "test"):
        wanted = {answer.text: answer for source in rag_sources(split, 90, seed=3) for answer in source.answers}
        found = [e for e in read(make(name, tmp_path, **options), split)[0] if "Unable" not in e.response]
        assert len(found) > 80
        for example in found:
            marks = wanted[example.response].marks
            assert [(s.start, s.end, s.label) for s in example.spans or ()] == [(m.start, m.end, m.type) for m in marks]


def test_ragtruth_has_its_tasks_its_flags_and_its_refusals(tmp_path: Path) -> None:
    WRITERS["ragtruth"](tmp_path, {"train": 900}, seed=0)
    examples, counts = read(make("ragtruth", tmp_path), "train")
    assert counts["dropped: quality incorrect_refusal"] == 18
    assert {e.meta["task"] for e in examples} == {"QA", "Summary", "Data2txt"}
    nulls = [e for e in examples if "due_to_null" in e.meta]
    assert nulls and all(e.meta["task"] == "Data2txt" and ": null" in e.knowledge for e in nulls)
    assert any("implicit_true" in e.meta for e in examples)
