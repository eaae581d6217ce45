"""The examples that the benchmarks run on."""

import json
from pathlib import Path

from data_modules.encoding.tokens import load_tokenizer
from faithkit.records import Span
from speed.samples import ANSWER, LONGEST, make_pairs, make_tagged
from speed.tagger_speed import write_rows
from tests.data_modules.examples import example
from tests.tiny import write_tokenizer


def test_examples_have_both_labels_and_the_requested_lengths(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))
    examples = make_tagged(tokenizer, 40)
    assert examples == make_tagged(tokenizer, 40)
    assert any(e.spans for e in examples) and any(not e.spans for e in examples)
    for e in examples:
        assert len(tokenizer(e.response, add_special_tokens=False)["input_ids"]) <= ANSWER[1] * 1.2
        assert all(e.response[s.start : s.end].strip() == e.response[s.start : s.end] != "" for s in e.spans or ())
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
