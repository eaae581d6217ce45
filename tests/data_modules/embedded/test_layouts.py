"""The writers: each dataset's loader reads its files."""

from pathlib import Path

import pytest

from data_modules.embedded.layouts import WRITERS
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from data_modules.registry import SOURCES
from faithkit.records import FAITHFUL, HALLUCINATED

ROWS = {"train": 48, "validation": 24, "test": 36}


@pytest.mark.parametrize("name", WRITERS)
def test_loaders_read_what_writers_write(name: str, tmp_path: Path) -> None:
    assert WRITERS[name](tmp_path, ROWS, seed=0) == tmp_path
    source = SOURCES[name if name in SOURCES else name.split("_")[0]](path=str(tmp_path))
    labels = set()
    for split in source.files():
        report = ReadReport()
        examples = list(read_examples(source, split, report))
        # Of Topical-Chat's turns those that have little in common with what they name are dropped.
        assert len(examples) >= (8 if name == "topical_chat" else 20) and not report.rejects
        labels |= {e.label for e in examples}
    unjudged = name in ("wow", "wow_faithdial", "cmu_dog", "topical_chat")
    assert labels == ({FAITHFUL} if name == "faithdial" else {None} if unjudged else {FAITHFUL, HALLUCINATED})
