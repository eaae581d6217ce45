"""Hallucinations made from faithful answers: what is marked has lost its support, the rest has not."""

import json
import random
from pathlib import Path

import pytest

from data_modules.build import build_source
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from data_modules.weak.dropped import UNSUPPORTED, drop_support
from faithkit.errors import UserError
from faithkit.records import HALLUCINATED, UNTYPED, Example
from faithkit.words import unicode_content_words

CONTEXT = (
    "The lighthouse was built from granite blocks in 1820. Its keeper lived there with seven children.\n"
    "A storm destroyed the wooden stairs in winter."
)
ANSWER = "Granite blocks were used for the lighthouse in 1820. The wooden stairs were destroyed by a winter storm."


def example(**values: object) -> Example:
    fields = {"id": "1", "source": "x", "split": "all", "group": "g", "knowledge": CONTEXT, "response": ANSWER}
    return Example(**{**fields, "spans": (), "label": "faithful", **values})  # type: ignore[arg-type]


def test_the_marked_sentence_is_the_one_whose_support_is_gone() -> None:
    made = list(drop_support(example(), random.Random(0), 2))
    assert len(made) == 2
    for copy in made:
        (span,) = copy.spans or ()
        marked, other = ANSWER[span.start : span.end], ANSWER[: span.start] + ANSWER[span.end :]
        left = set(unicode_content_words(copy.knowledge))
        words = set(unicode_content_words(marked))
        assert len(words & left) / len(words) <= UNSUPPORTED
        assert set(unicode_content_words(other)) & left, "the other sentence keeps its support"
        assert "keeper lived" in copy.knowledge and copy.response == ANSWER
        assert copy.label == HALLUCINATED and span.label == UNTYPED
    assert {copy.spans[0].start for copy in made if copy.spans} == {0, ANSWER.index("The wooden")}


def test_nothing_is_made_where_it_is_not_clear_what_lost_its_support() -> None:
    whole = "The lighthouse was built from granite blocks in 1820."
    assert not list(drop_support(example(knowledge=whole), random.Random(0), 3)), "the context would be empty"
    mixed = "Granite blocks, wooden stairs and a winter storm: the lighthouse of 1820 was destroyed. It had a keeper."
    assert all(
        copy.spans and len(copy.spans) == 2 for copy in drop_support(example(knowledge=mixed), random.Random(0), 3)
    )


def test_it_is_read_from_another_corpus_and_only_trains(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "group": "g1", "context": CONTEXT, "answer": ANSWER, "spans": []},
        {"id": "b", "group": "g2", "context": CONTEXT, "answer": ANSWER, "spans": [{"start": 0, "end": 7}]},
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    source = build_source("dropped_support", str(path), of={"dataset": "pairs"}, num_copies=2)
    report = ReadReport()
    made = list(read_examples(source, "train", report))
    assert {e.id for e in made} == {"a-dropped-0", "a-dropped-1"} and {e.group for e in made} == {"g1"}
    assert source.train_only and report.counts["not made from: hallucinated already"] == 1
    with pytest.raises(UserError, match="num_copies"):
        build_source("dropped_support", str(path), of={"dataset": "pairs"}, num_copies=0)
