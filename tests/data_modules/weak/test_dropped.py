"""Hallucinations made from faithful answers: what is marked has lost its support, the rest has not."""

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
from tests.data_modules.examples import example
from tests.data_modules.official_rows import write

CONTEXT = (
    "The lighthouse was built from granite blocks in 1820. Its keeper lived there with seven children.\n"
    "A storm destroyed the wooden stairs in winter."
)
ANSWER = "Granite blocks were used for the lighthouse in 1820. The wooden stairs were destroyed by a winter storm."


def copies(knowledge: str, count: int) -> list[Example]:
    given = example(knowledge=knowledge, response=ANSWER, spans=())
    return list(drop_support(given, random.Random(0), count))


def test_the_marked_sentence_is_the_one_whose_support_is_gone() -> None:
    made = copies(CONTEXT, 2)
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
    assert not copies(whole, 3), "the context would be empty"
    mixed = "Granite blocks, wooden stairs and a winter storm: the lighthouse of 1820 was destroyed. It had a keeper."
    assert all(copy.spans and len(copy.spans) == 2 for copy in copies(mixed, 3))


def test_it_is_read_from_another_corpus_and_only_trains(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "group": "g1", "context": CONTEXT, "answer": ANSWER, "spans": []},
        {"id": "b", "group": "g2", "context": CONTEXT, "answer": ANSWER, "spans": [{"start": 0, "end": 7}]},
    ]
    path = write(tmp_path / "mine.jsonl", rows)
    source = build_source("dropped_support", str(path), of={"dataset": "pairs"}, num_copies=2)
    report = ReadReport()
    made = list(read_examples(source, "train", report))
    assert {e.id for e in made} == {"a-dropped-0", "a-dropped-1"} and {e.group for e in made} == {"g1"}
    assert source.train_only and report.counts["not made from: hallucinated already"] == 1
    with pytest.raises(UserError, match="num_copies"):
        build_source("dropped_support", str(path), of={"dataset": "pairs"}, num_copies=0)
