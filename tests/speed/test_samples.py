"""The examples that the benchmarks run on."""

import json
from pathlib import Path
from typing import Any

import pytest

from data_modules.encoding.tokens import load_tokenizer
from faithkit.records import Span
from speed.lettuce import write_rows
from speed.samples import ANSWER, LONGEST, make_pairs, make_tagged
from tests.data_modules.examples import example
from tests.tiny import write_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    write_tokenizer(tmp_path)
    return load_tokenizer(str(tmp_path))


def test_tagged_examples_have_spans_within_answers_of_the_requested_length(tokenizer: Any) -> None:
    examples = make_tagged(tokenizer, 40)
    assert examples == make_tagged(tokenizer, 40)
    assert any(e.spans for e in examples) and any(not e.spans for e in examples)
    for e in examples:
        assert len(tokenizer(e.response, add_special_tokens=False)["input_ids"]) <= ANSWER[1] * 1.2
        assert all(e.response[s.start : s.end].strip() == e.response[s.start : s.end] != "" for s in e.spans or ())


def test_pairs_have_both_labels_and_are_not_truncated(tokenizer: Any) -> None:
    pairs = make_pairs(tokenizer, 100)
    assert {pair.label for pair in pairs} == {"faithful", "hallucinated"}
    lengths = [len(tokenizer(pair.knowledge, pair.response)["input_ids"]) for pair in pairs]
    assert max(lengths) <= LONGEST * 1.2 and min(lengths) < 60


def test_rows_for_lettucedetect_keep_characters(tmp_path: Path) -> None:
    spans = (Span(start=6, end=7, label="subtle_conflict"),)
    one = example(response="Größe 🙂 x", label="hallucinated", spans=spans)
    row = json.loads(write_rows([one], tmp_path / "rows").read_text(encoding="utf-8"))
    assert row["answer"][row["labels"][0]["start"] : row["labels"][0]["end"]] == "🙂"
    assert row["prompt"] == one.knowledge
