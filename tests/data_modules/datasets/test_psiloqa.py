"""PsiloQA: answers in several languages, with spans by offsets of characters."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.data_modules.official.benchmark_sets import INN, PSILOQA
from tests.data_modules.official_rows import labels, make, read, write


def test_the_releases_parquet_gives_spans_of_every_language(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for split in ("train", "test"):
        pq.write_table(pa.Table.from_pylist(PSILOQA), tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    source = make("psiloqa", tmp_path)
    assert source.split_names() == ["train", "test"]
    examples, counts = read(source)
    assert counts == {"kept": 5} and labels(examples) == {"hallucinated": 3, "faithful": 2}
    marked = [[one.response[span.start : span.end] for span in one.spans or ()] for one in examples]
    assert marked == [["southern coast"], [], ["90 metriä"], ["kesäkuussa", "uima-allas"], []]
    assert [one.meta["language"] for one in examples] == ["en", "en", "fi", "fi", "zh"]
    second = examples[1]
    assert (second.knowledge, second.reference, second.history[0].text) == (INN, "A lake.", "What is Orvel?")


def test_a_language_without_spans_is_faithful(tmp_path: Path) -> None:
    path = write(tmp_path / "test.jsonl", PSILOQA)
    examples, counts = read(make("psiloqa", path, languages="zh"))
    assert [(one.label, one.spans) for one in examples] == [("faithful", ())]
    assert counts["dropped: language fi"] == 2


def test_marks_that_are_not_those_of_the_offsets_are_counted(tmp_path: Path) -> None:
    shifted = {**PSILOQA[0], "labels": [[0, 6]]}
    examples, counts = read(make("psiloqa", write(tmp_path / "test.jsonl", [shifted, *PSILOQA[1:]])))
    assert counts["labels and annotated_span disagree, the labels count"] == 1
    assert [(span.start, span.end) for span in examples[0].spans or ()] == [(0, 6)]
