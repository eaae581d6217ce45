"""The embedded corpus in the layout of each dataset, read by the dataset's loader."""

import pytest

from data_modules.build import build_source
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from data_modules.registry import SOURCES
from faithkit.records import FAITHFUL, HALLUCINATED

ROWS = {"train": 48, "validation": 24, "test": 36}
UNJUDGED = ("wow", "weak_wow", "cmu_dog", "topical_chat")


@pytest.mark.parametrize("name", sorted(set(SOURCES) - {"embedded", "everyday"}))
def test_every_dataset_can_stand_on_the_embedded_corpus_in_its_own_layout(name: str) -> None:
    source = build_source(name, "embedded", embedded_rows=ROWS)
    labels = set()
    for split in source.split_names():
        report = ReadReport()
        examples = list(read_examples(source, split, report))
        # Of some corpora many rows are dropped: turns unlike their knowledge, answers whose support is not clear.
        assert len(examples) >= (3 if name in ("topical_chat", "dropped_support") else 20) and not report.rejects
        labels |= {e.label for e in examples}
    if name == "dropped_support":
        assert labels == {HALLUCINATED} and all(e.spans for e in examples)
    else:
        some = {FAITHFUL} if name == "faithdial" else {None} if name in UNJUDGED else {FAITHFUL, HALLUCINATED}
        assert labels == some


def test_irregular_cells_of_the_releases_are_written_and_read() -> None:
    begin = build_source("begin", "embedded", embedded_rows=ROWS)
    blank = [one for one in read_examples(begin, "test", ReadReport()) if not one.history]
    assert blank and {one.meta["data_source"] for one in blank} == {"cmu"}, "a blank message is no turn"
    conjnli = build_source("conjnli", "embedded", embedded_rows=ROWS)
    report = ReadReport()
    quoted = [one for one in read_examples(conjnli, "train", report) if one.knowledge.startswith('"')]
    assert quoted and all(one.knowledge.count('"') == 2 and one.response for one in quoted) and not report.rejects
