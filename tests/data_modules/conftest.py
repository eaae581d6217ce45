"""The embedded corpus as Parquet shards."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_modules.embedded.corpus import Embedded
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from faithkit.files.jsonl import write_jsonl

SIZES = (17, 5, 23, 0, 9, 20)  # rows of each shard: 74
Rows = list[dict[str, Any]]
Write = Callable[..., Path]


@pytest.fixture(scope="session")
def encoder(tiny_bert: Path) -> PairEncoder:
    return PairEncoder(tokenizer=load_tokenizer(str(tiny_bert)), max_length=48)


def rows_of(count: int) -> Rows:
    examples = Embedded(num_train=count).generate("train")
    rows = [{"id": e.id, "knowledge": e.knowledge, "response": e.response, "label": e.label} for e in examples]
    return rows[:count]


def write_shard(path: Path, rows: Rows) -> None:
    schema = pa.schema([(name, pa.string()) for name in ("id", "knowledge", "response", "label")])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, row_group_size=8)


def write_snli(folder: Path, *rows: tuple[str, str, str]) -> Path:
    """SNLI's training file with these premises, hypotheses and labels."""
    names = ("sentence1", "sentence2", "gold_label")
    path = folder / "snli_1.0_train.jsonl"
    write_jsonl(path, ({**dict(zip(names, row, strict=True)), "pairID": f"p{i}"} for i, row in enumerate(rows)))
    return path


@pytest.fixture
def write_shards(tmp_path: Path) -> Write:
    """Writes shards of these sizes, with validation and test files."""

    def write(sizes: tuple[int, ...] = SIZES, *, name: str = "train") -> Path:
        folder = tmp_path / "shards"
        folder.mkdir(exist_ok=True)
        rows = rows_of(sum(sizes) + 16)
        for number, size in enumerate(sizes):
            write_shard(folder / f"{name}-{number:05}.parquet", rows[:size])
            rows = rows[size:]
        if name == "train":
            write_shard(folder / "validation-00000.parquet", rows[:8])
            write_shard(folder / "test-00000.parquet", rows[8:])
        return folder

    return write
