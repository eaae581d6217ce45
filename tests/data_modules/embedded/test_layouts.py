"""The writers: official file names and fields, each read by the dataset's loader."""

from pathlib import Path

import pytest

from data_modules.embedded.layouts import WRITERS
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from data_modules.registry import SOURCES
from faithkit.records import FAITHFUL, HALLUCINATED

ROWS = {"train": 48, "validation": 24, "test": 36}
SPLITS = ("random", "topic")
CORPORA = (("cmu-dog", "cmu"), ("topicalchat", "tc"), ("wow", "wow"))
TOPICAL = ("test_freq", "test_rare", "train", "valid_freq", "valid_rare")
FILES = {
    "faithdial": ["test.json", "train.json", "valid.json"],
    "wow": [*(f"test_{s}_split.json" for s in SPLITS), "train.json", *(f"valid_{s}_split.json" for s in SPLITS)],
    "begin": [f"{folder}/begin_{s}_{name}.tsv" for folder, name in CORPORA for s in ("dev", "test")],
    "topical_chat": [
        *(f"conversations/{name}.json" for name in TOPICAL),
        *(f"reading_sets/post-build/{name}.json" for name in TOPICAL),
    ],
    "mnli": ["multinli_1.0_dev_matched.jsonl", "multinli_1.0_dev_mismatched.jsonl", "multinli_1.0_train.jsonl"],
    "snli": ["snli_1.0_dev.jsonl", "snli_1.0_test.jsonl", "snli_1.0_train.jsonl"],
    "dnli": ["dialogue_nli_dev.jsonl", "dialogue_nli_test.jsonl", "dialogue_nli_train.jsonl"],
    "decode": ["dev.jsonl", "test.jsonl", "train.jsonl"],
    "ragtruth": ["response.jsonl", "source_info.jsonl"],
    "xsum_tokens": ["xsum_token_labels.jsonl"],
    "halludial": [f"{s}/{s}_{split}.json" for s in ("induced", "spontaneous") for split in ("test", "train")],
    "halueval": ["dialogue_data.json", "general_data.json", "qa_data.json", "summarization_data.json"],
    "diahalu": ["DiaHalu.jsonl"],
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_loaders_read_what_writers_write(name: str, tmp_path: Path) -> None:
    assert WRITERS[name](tmp_path, ROWS, seed=0) == tmp_path
    files = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file())
    assert files == FILES.get(name, files)
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
